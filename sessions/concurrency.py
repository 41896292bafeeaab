"""Run work beside a second function; the end of either ends both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


class Overtaken(Exception):
    """Raised when the function beside the work ended first, and the work was cancelled."""


async def beside(other: Callable[[], Awaitable[object]], work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` and `other` concurrently until one of them ends, and return the result of `work`.

    Raises:
        Overtaken: `other` ended first.
        Exception: as `work` raised it.
    """
    failure: Exception | None = None
    outcome: list[T] = []
    async with anyio.create_task_group() as tasks:

        async def overtake() -> None:
            await other()
            tasks.cancel_scope.cancel()

        tasks.start_soon(overtake)
        try:
            outcome.append(await work())
        except Exception as error:
            # Not through the task group, which would wrap it.
            failure = error
        # Shielded: a caller that is cancelled at this moment still gets the result, so that it can undo the work.
        tasks.cancel_scope.shield = True
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not outcome:
        raise Overtaken
    return outcome[0]


__all__ = ["Overtaken", "beside"]
