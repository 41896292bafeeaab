"""Statistics of measured values."""

from __future__ import annotations

import gc
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which a part of the values lies, by the nearest rank."""
    ordered_values = sorted(values)
    return ordered_values[min(len(ordered_values) - 1, int(part * len(ordered_values)))]


def median(values: Sequence[float]) -> float:
    ordered_values = sorted(values)
    middle = len(ordered_values) // 2
    return (
        ordered_values[middle]
        if len(ordered_values) % 2
        else (ordered_values[middle - 1] + ordered_values[middle]) / 2
    )


RESAMPLED = 1000


def ratio(values: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of two medians, and its 95 % confidence interval, by bootstrapping."""
    generator = random.Random(1)
    ratios = [
        median(generator.choices(values, k=len(values)))
        / median(generator.choices(others, k=len(others)))
        for _ in range(RESAMPLED)
    ]
    return median(values) / median(others), quantile(ratios, 0.025), quantile(ratios, 0.975)


@contextmanager
def undisturbed() -> Generator[None]:
    """Turn this process's garbage collector off for the measurements of the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
