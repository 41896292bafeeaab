"""The session that calls outside of every block share, where a program has asked for one."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from .block import ended

if TYPE_CHECKING:
    from .block import SessionBlock
    from .session import Session


class AutoSession:
    """One session for one hub, made by the first call that needs it and made anew when it was closed meanwhile.

    It is in force from auto_session() until end(), the end of its block, or the end of the hub.
    """

    def __init__(
        self, block: Callable[[], SessionBlock], forget: Callable[[AutoSession], None]
    ) -> None:
        self._block = block
        self._forget = forget
        self._lock = anyio.Lock()
        self._session: Session | None = None

    async def session(self) -> Session:
        """Return the session, making it when there is none."""
        async with self._lock:
            if self._session is None or not self._session.is_open:
                self._session = await self._block().find()
            return self._session

    async def end(self, *, close: bool = True) -> None:
        """Go back to calls that need a block; `close` closes the session when it was made here. May be called twice."""
        self._forget(self)
        session, self._session = self._session, None
        if session is not None and close and not session.attached:
            await ended(session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.end()


__all__ = ["AutoSession"]
