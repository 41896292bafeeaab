"""Work with a process that may die or hang while nobody else asks it anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from ....sessions.concurrency import Overtaken, beside

T = TypeVar("T")

DOUBT_SECONDS: Final = 3.0
"""After so long without an end it is asked whether the process still answers."""


class Gone(Exception):
    """Raised when a process ended during work that only it could end."""


async def while_living(
    work: Callable[[], Awaitable[T]],
    gone: anyio.Event,
    check: Callable[[], Awaitable[object]],
    spawn: Callable[..., object],
) -> T:
    """Return what `work` returns, and give it up when the process that it needs is `gone`.

    Playwright waits without end for what hangs, and does not tell when its driver died. So work that takes long has the
    process checked; `check` kills what does not answer. That is left to `spawn`, because whoever gives up waiting, and
    tries again, must find out no less.

    Raises:
        Gone: the process ended before the work did.
        whatever `work` raises.
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
        return await beside(gone.wait, work)
    except Overtaken:
        raise Gone from None
    finally:
        over.set()


__all__ = ["Gone", "while_living"]
