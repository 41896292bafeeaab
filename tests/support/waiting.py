"""Waiting for a condition that raises no event: the state of another process, a file, a counter."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio

T = TypeVar("T")

WITHIN_SECONDS = 20.0
"""Much longer than any condition takes: only a failure waits so long."""
POLL_SECONDS = 0.01


async def until(condition: Callable[[], T | Awaitable[T]], *, within: float = WITHIN_SECONDS) -> T:
    """Return the first true value of `condition`, which may be async.

    Raises TimeoutError after `within` seconds.
    """
    with anyio.fail_after(within):
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await cast("Awaitable[T]", value)
            if value:
                return cast("T", value)
            await anyio.sleep(POLL_SECONDS)


def until_blocking(condition: Callable[[], T], *, within: float = WITHIN_SECONDS) -> T:
    """Do the same in a test that is not async; it blocks the thread."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition was not met within {within:g} seconds")
        time.sleep(POLL_SECONDS)
    return value


__all__ = ["until", "until_blocking"]
