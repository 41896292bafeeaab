"""The session of a block, and the one that calls outside of every block share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from .blocks import create_or_undo, end_session
from .errors import NoCurrentSession
from .session import Session

if TYPE_CHECKING:
    from .directory import SessionDirectory


class SessionBlock:
    """`async with` it: it opens a session, or attaches to one, and makes it the current one of this task in the block.

    The end of the block, by an error too, closes a session that the block made, and the children it forked; a session that
    it attached to is left. Exceptions of the block pass unchanged.
    """

    def __init__(
        self, directory: SessionDirectory, options: Mapping[str, Any], *, keep: bool | None
    ) -> None:
        self._directory = directory
        self._options = options
        self._keep = keep
        self._session: Session | None = None
        self._use: AbstractContextManager[Session] | None = None

    async def open(self) -> Session:
        """Open the session, or attach to it, without making it the current one."""
        if self._session is not None:
            raise RuntimeError("this block was entered before; ask the client for another one")
        session = await create_or_undo(self._open, self._end)
        self._session = session
        if self._closes(session):
            session.children = []
        return session

    async def close(self) -> None:
        """End a session that open() created. May be called before open()."""
        if self._session is not None:
            await self._end(self._session)

    async def _open(self) -> Session:
        return await self._directory.open(self._options)

    async def _end(self, session: Session) -> None:
        if self._closes(session):
            await end_session(session)

    def _closes(self, session: Session) -> bool:
        return not (session.attached if self._keep is None else self._keep)

    async def __aenter__(self) -> Session:
        session = await self.open()
        self._use = session.use()
        return self._use.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._use is not None
        self._use.__exit__(None, None, None)
        await self.close()


class AutoSession:
    """One session for one client. The first call that needs it creates it; after it was closed, the next one does.

    It is in force from auto_session() until end(), the end of its block, or the end of the client.
    """

    def __init__(self, directory: SessionDirectory, options: Mapping[str, Any]) -> None:
        self._directory = directory
        self._lock = anyio.Lock()
        self._session: Session | None = None
        self.options = options
        """The name and options that auto_session() was called with."""
        self.is_ended = False

    async def session(self) -> Session:
        """Return the session, making it when there is none."""
        async with self._lock:
            if self.is_ended:
                raise NoCurrentSession("auto_session() has ended: a call")
            if self._session is None or not self._session.is_open:
                self._session = await create_or_undo(self._open, _end_created)
            return self._session

    async def _open(self) -> Session:
        return await self._directory.open(self.options)

    async def end(self, *, close: bool = True) -> None:
        """Go back to calls that need a block; `close` closes the session when it was made here. May be called twice."""
        self.is_ended = True
        async with self._lock:  # waits for a session that is being made
            session, self._session = self._session, None
        if session is not None and close:
            await _end_created(session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.end()


async def _end_created(session: Session) -> None:
    if not session.attached:
        await end_session(session)


__all__ = ["AutoSession", "SessionBlock"]
