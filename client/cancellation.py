"""Creating an object at a server for a caller that may be cancelled meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

T = TypeVar("T")

LEAVE_SECONDS: Final = 3.0
"""Seconds that a cancelled caller waits for the object that it was creating, so that it can undo it."""


async def create_or_undo(
    create: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[None]]
) -> T:
    """Return the result of `create`. When the caller is cancelled meanwhile, undo it, since no other code knows of it."""
    results: list[T] = []
    errors: list[Exception] = []
    finished, scope = anyio.Event(), anyio.CancelScope(shield=True)

    async def run_create() -> None:
        with scope:
            try:
                results.append(await create())
            except Exception as error:
                # Not through the task group, which would wrap it.
                errors.append(error)
        finished.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_create)
            try:
                await finished.wait()
            except BaseException:
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await finished.wait()
                scope.cancel()
                raise
    except BaseException:
        with anyio.CancelScope(shield=True):
            for each in results:
                await undo(each)
        raise
    if errors:
        raise errors[0]
    return results[0]


__all__ = ["create_or_undo"]
