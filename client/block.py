"""The blocks in which a session is the current one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from .errors import SessionNotFound
from .session import Session

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")

logger = logging.getLogger("statehold.client")

CLOSE_SECONDS: Final = 15.0
"""Seconds that the end of a block waits for its session to close. A session it cannot reach ends when its times run out."""
LEAVE_SECONDS: Final = 3.0
"""Seconds that a cancelled caller waits for the object that it was creating, so that it can undo it."""


class SessionBlock:
    """`async with` it: it opens a session, or attaches to one, and makes it the current one of this task in the block.

    The end of the block, by an error too, closes a session that the block made, and the children it forked; a session that
    it attached to is left. Exceptions of the block pass unchanged.
    """

    def __init__(
        self, client: Client, find: Callable[[], Awaitable[Session]], *, keep: bool | None
    ) -> None:
        self._client = client
        self.find = find
        self._keep = keep
        self._session: Session | None = None
        self._outer: Any = ()

    async def __aenter__(self) -> Session:
        if self._session is not None:
            raise RuntimeError("this block was entered before; ask the client for another one")
        session = self._session = await made(self.find, self._undo)
        if self._closes(session):
            session.children = []
        self._outer = self._client.current.enter(self._client.key, session)
        return session

    async def _undo(self, session: Session) -> None:
        if self._closes(session):
            await ended(session)

    def _closes(self, session: Session) -> bool:
        return not (session.attached if self._keep is None else self._keep)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._session
        assert session is not None
        self._client.current.leave(self._outer)
        if self._closes(session):
            await ended(session)


async def abandoned(block: SessionBlock) -> None:
    """Undo an entered block whose caller was interrupted before it knew that the block was entered."""
    if block._session is not None:  # pyright: ignore[reportPrivateUsage]
        await block._undo(block._session)  # pyright: ignore[reportPrivateUsage]


async def made(make: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[None]]) -> T:
    """Return the result of `make`. When the caller is cancelled meanwhile, undo it, since no other code knows of it."""
    found: list[T] = []
    failed: list[Exception] = []
    over, scope = anyio.Event(), anyio.CancelScope(shield=True)

    async def run() -> None:
        with scope:
            try:
                found.append(await make())
            except Exception as error:
                # Not through the task group, which would wrap it.
                failed.append(error)
        over.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            try:
                await over.wait()
            except BaseException:
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await over.wait()
                scope.cancel()
                raise
    except BaseException:
        with anyio.CancelScope(shield=True):
            for each in found:
                await undo(each)
        raise
    if failed:
        raise failed[0]
    return found[0]


async def ended(session: Session) -> None:
    """Close a session and the children it forked, within a bound, also when the caller is cancelled.

    It raises nothing, so that it does not hide an exception of the block.
    """
    children, session.children = session.children or [], None
    with anyio.move_on_after(CLOSE_SECONDS, shield=True):
        async with anyio.create_task_group() as tasks:
            for each in _family(session, children):
                tasks.start_soon(_closed, each)


async def all_ended(sessions: list[Session]) -> None:
    """Close sessions, each as ended()."""
    for session in sessions:
        await ended(session)


def _family(session: Session, children: list[Session]) -> list[Session]:
    found = [session]
    for child in children:
        found += _family(child, child.children or [])
    return found


async def _closed(session: Session) -> None:
    if not session.is_open:
        return
    try:
        await session.client.calls.run(session.id, "session_close", {}, patient=False)
    except SessionNotFound:
        pass
    except Exception as error:
        # A malformed answer must not hide an exception of the block either.
        logger.warning("session %s was not closed: %s", session.id, error)
    session.mark_closed()


__all__ = ["SessionBlock", "abandoned", "all_ended", "ended", "made"]
