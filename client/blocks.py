"""The blocks of a program: the current session of a task or thread, and objects that a cancelled block was creating."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import anyio

S = TypeVar("S")


@dataclass(slots=True, eq=False)
class CurrentEntry(Generic[S]):
    """One block that was entered. `is_left` marks a block that was left, in every context that still holds the entry."""

    scope: object
    session: S
    is_left: bool = False


class Current(Generic[S]):
    """The sessions of the blocks around the running code, the innermost last.

    A context variable holds them, so a task that is started inside of a block has that block's session, and another
    task, or thread, never sees it.
    """

    def __init__(self, name: str) -> None:
        self._inside: ContextVar[tuple[CurrentEntry[S], ...]] = ContextVar(name, default=())

    def enter(self, scope: object, session: S) -> CurrentEntry[S]:
        """Make it the current session of `scope`; return the entry for leave()."""
        entry = CurrentEntry(scope, session)
        self._inside.set((*self._inside.get(), entry))
        return entry

    def leave(self, entry: CurrentEntry[S]) -> None:
        """End an entry, also in another context, or before the end of a block that was entered later."""
        # Not with a token, which works in the context of enter() only: fixtures and exit stacks leave in other contexts.
        entry.is_left = True
        self._inside.set(tuple(each for each in self._inside.get() if not each.is_left))

    def find(self, scope: object) -> S | None:
        """Return the innermost session of a scope."""
        for entry in reversed(self._inside.get()):
            if entry.scope == scope and not entry.is_left:
                return entry.session
        return None


T = TypeVar("T")

CLOSE_SECONDS: Final = 15.0
"""Seconds that end_session() waits for sessions to close. A session it cannot reach ends when its times run out."""
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


class BlockSession(Protocol):
    """A session that ends with a block, together with children that it forked there."""

    def take_children(self) -> Sequence[BlockSession]: ...

    async def close_quietly(self) -> None: ...


async def end_session(session: BlockSession) -> None:
    """Close a session and the children it forked, within a bound, also when the caller is cancelled.

    It raises nothing, so that it does not hide an exception of the block around.
    """
    with anyio.move_on_after(CLOSE_SECONDS, shield=True):
        async with anyio.create_task_group() as tasks:
            for each in _take_family(session):
                tasks.start_soon(each.close_quietly)


async def end_sessions(sessions: Sequence[BlockSession]) -> None:
    for session in sessions:
        await end_session(session)


def _take_family(session: BlockSession) -> list[BlockSession]:
    children = session.take_children()
    return [session, *(each for child in children for each in _take_family(child))]


__all__ = ["Current", "CurrentEntry", "create_or_undo", "end_session", "end_sessions"]
