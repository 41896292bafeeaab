"""Work while something else runs beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


class Overtaken(Exception):
    """Raised when what ran beside the work ended first, and the work was given up."""


async def beside(other: Callable[[], Awaitable[object]], work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns; `other` runs meanwhile, and both end together.

    Raises:
        Overtaken: `other` ended first.
        whatever `work` raises, as it is.
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
        # Whoever is cancelled at this moment still gets what was done, to undo it.
        tasks.cancel_scope.shield = True
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not outcome:
        raise Overtaken
    return outcome[0]


__all__ = ["Overtaken", "beside"]
