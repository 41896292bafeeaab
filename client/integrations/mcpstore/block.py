"""The block of with_session(), with or without `async`, in which a session is the current one."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import anyio

from ... import session
from ...block import ended
from ...current import Current
from .session import Session

if TYPE_CHECKING:
    from .context import Context
    from .space import Options

current: Current[Session] = Current("statehold.client.integrations.mcpstore.session")
"""The sessions of the blocks around the running code, in this task or thread."""


class SessionBlock:
    """`with` or `async with` it: it opens a session, or attaches to one, and makes it the current one in the block.

    The end of the block, by an error too, closes a session that the block made, with its forks; a session that it attached
    to is left. Awaiting the block returns it, so that `async with await ...`, as for MCPStore, works too.
    """

    def __init__(
        self, context: Context, session_id: str | None, **options: Unpack[Options]
    ) -> None:
        self._context = context
        self._session_id = session_id
        self._options = options
        self._begun = False
        self._abandoned = False
        self._opened: session.Session | None = None
        self._outer: Any = ()

    def __await__(self) -> Generator[Any, None, SessionBlock]:
        return self
        yield

    def __enter__(self) -> Session:
        self._begin()
        try:
            return self._entered(self._context.client.run(self._open))
        except BaseException:
            if self._abandon():
                self._context.client.run(self._end)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.leave(self._outer)
        if self._context.client.is_open:
            self._context.client.run(self._end)

    async def __aenter__(self) -> Session:
        self._begin()
        try:
            return self._entered(await self._context.client.wait(self._open))
        except BaseException:
            if self._abandon():
                with anyio.CancelScope(shield=True):
                    await self._context.client.wait(self._end)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.leave(self._outer)
        if self._context.client.is_open:
            with anyio.CancelScope(shield=True):
                await self._context.client.wait(self._end)

    def _begin(self) -> None:
        if self._begun:
            raise RuntimeError("this block was entered before; ask for another one")
        self._begun = True

    def _entered(self, session: Session) -> Session:
        self._outer = current.enter(self._context.key, session)
        return session

    # These run in the client's event loop.

    async def _open(self) -> Session:
        """Open the session. When the caller is cancelled meanwhile, it is closed as soon as it is open."""
        with anyio.CancelScope(shield=True):
            self._opened = await self._context.space.open(self._session_id, **self._options)
            if self._abandoned:
                await self._end()
        opened = self._opened
        assert opened is not None
        if not opened.attached:
            opened.children = []
        return Session(self._context.client, self._context.space, opened, self._session_id)

    def _abandon(self) -> bool:
        """Give up a session that is being opened; return whether it is open already and has to be closed."""
        self._abandoned = True
        return self._opened is not None

    async def _end(self) -> None:
        if self._opened is not None and not self._opened.attached:
            await ended(self._opened)


__all__ = ["SessionBlock", "current"]
