"""What with_session() returns: a block, with or without `async`, in which a session is the current one."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import anyio

from ..block import ended
from ..current import Current
from .session import Session

if TYPE_CHECKING:
    from .context import Context
    from .space import Options

current: Current[Session] = Current("statehold.client.mcpstore.session")
"""The sessions of the blocks around the running code, in this task or thread."""


class SessionBlock:
    """`with` or `async with` it: the session is opened, or attached to, and is the current one inside of the block.

    At the end, however it comes, a session that the block made is closed, with what it forked; one that it attached to is
    left. Awaiting the block changes nothing: what was written `async with await ...` for MCPStore works too.
    """

    def __init__(
        self, context: Context, session_id: str | None, **options: Unpack[Options]
    ) -> None:
        self._context = context
        self._session_id = session_id
        self._options = options
        self._begun = False
        self._session: Session | None = None
        self._outer: Any = ()

    def __await__(self) -> Generator[Any, None, SessionBlock]:
        return self
        yield

    def __enter__(self) -> Session:
        self._begin()
        return self._entered(self._context.create_session(self._session_id, **self._options))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._left()
        if not session.attached:
            self._context.hub.run(ended, session.inner)

    async def __aenter__(self) -> Session:
        self._begin()
        return self._entered(
            await self._context.create_session_async(self._session_id, **self._options)
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._left()
        if not session.attached:
            with anyio.CancelScope(shield=True):
                await self._context.hub.wait(ended, session.inner)

    def _begin(self) -> None:
        if self._begun:
            raise RuntimeError("this block was entered before; ask for another one")
        self._begun = True

    def _entered(self, session: Session) -> Session:
        self._session = session
        if not session.attached:
            session.inner.children = []
        self._outer = current.enter(self._context.key, session)
        return session

    def _left(self) -> Session:
        session = self._session
        assert session is not None
        current.leave(self._outer)
        return session


__all__ = ["SessionBlock", "current"]
