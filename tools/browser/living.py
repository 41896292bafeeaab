"""Work with a process that may die or hang while nobody else asks it anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

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
    outcome: list[T] = []
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await gone.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            try:
                outcome.append(await work())
            except Exception as error:
                # Not through the task group, which would wrap it.
                failure = error
            tasks.cancel_scope.cancel()
    finally:
        over.set()
    if failure is not None:
        raise failure
    if not outcome:
        raise Gone
    return outcome[0]


__all__ = ["Gone", "while_living"]
