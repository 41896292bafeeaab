"""The session that calls outside of every block share, where a program has asked for one."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from .block import ended, made
from .errors import NoCurrentSession

if TYPE_CHECKING:
    from .block import SessionBlock
    from .session import Session


class AutoSession:
    """One session for one client. The first call that needs it creates it; after it was closed, the next one does.

    It is in force from auto_session() until end(), the end of its block, or the end of the client.
    """

    def __init__(
        self, block: Callable[[], SessionBlock], forget: Callable[[AutoSession], None]
    ) -> None:
        self._block = block
        self._forget = forget
        self._lock = anyio.Lock()
        self._session: Session | None = None
        self._ended = False
        self.asked: object = None
        """The name and options that auto_session() was called with."""

    async def session(self) -> Session:
        """Return the session, making it when there is none."""
        async with self._lock:
            if self._ended:
                raise NoCurrentSession("auto_session() has ended: a call")
            if self._session is None or not self._session.is_open:
                self._session = await made(self._block().find, _undone)
            return self._session

    async def end(self, *, close: bool = True) -> None:
        """Go back to calls that need a block; `close` closes the session when it was made here. May be called twice."""
        self._forget(self)
        self._ended = True
        async with self._lock:  # waits for a session that is being made
            session, self._session = self._session, None
        if session is not None and close:
            await _undone(session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.end()


async def _undone(session: Session) -> None:
    if not session.attached:
        await ended(session)


__all__ = ["AutoSession"]
