"""Waits on a process that may die or hang while no other call would notice it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from ....sessions.concurrency import RaceLost, race

T = TypeVar("T")

DOUBT_SECONDS: Final = 3.0
"""Seconds of waiting after which the process is checked, again and again."""


class ProcessGone(Exception):
    """Raised when a process ended during work that needs it."""


async def while_alive(
    work: Callable[[], Awaitable[T]],
    end: anyio.Event,
    check: Callable[[], Awaitable[object]],
    spawn: Callable[..., object],
) -> T:
    """Return the result of `work`, or cancel it when the process that it needs is `end`.

    Playwright waits without limit for a hung process, and raises no event when its driver dies. So during long work the
    process is checked; `check` kills a process that does not answer. The checks run in a task of `spawn`, because a check
    under way must finish even if the caller is cancelled.

    Raises:
        Gone: The process ended before the work did.
        Exception: `work` raised it.
    """
    over = anyio.Event()

    async def doubt() -> None:
        while not over.is_set():
            with anyio.move_on_after(DOUBT_SECONDS):
                await over.wait()
            if not over.is_set():
                await check()

    spawn(doubt)
    try:
        return await race(end.wait, work)
    except RaceLost:
        raise ProcessGone from None
    finally:
        over.set()
