"""Statistics of measured values."""

from __future__ import annotations

import gc
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which a part of the values lies, by the nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))]


def median(values: Sequence[float]) -> float:
    ranked = sorted(values)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


RESAMPLED = 1000


def ratio(values: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of two medians, and its 95 % confidence interval, by bootstrapping."""
    drawn = random.Random(1)
    ratios = [
        median(drawn.choices(values, k=len(values))) / median(drawn.choices(others, k=len(others)))
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
