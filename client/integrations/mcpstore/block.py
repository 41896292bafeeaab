"""The session of with_session(), which is the current one inside of a block, with or without `async`."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import anyio

from ... import session
from ...blocks import CurrentEntry, end_session
from .session import Session, current_sessions

if TYPE_CHECKING:
    from ...options import BasicSessionOptions
    from ...sync.client import Client
    from .space import Space


class SessionBlock(Session):
    """A session that opens, or attaches, at its first use. It is the current one inside of `with` or `async with`.

    The end of the block, by an error too, closes a session that the block made, with its forks; a session that it attached
    to is left. Without a block the session stays until it is closed. Awaiting it returns it, so that
    `async with await ...`, as for MCPStore, works too.
    """

    def __init__(
        self,
        client: Client,
        space: Space,
        session_id: str | None,
        **options: Unpack[BasicSessionOptions],
    ) -> None:
        self._client = client
        self._space = space
        self._session_id = session_id
        self._options = options
        self._is_entered = False
        self._is_abandoned = False
        self._inner = None
        self._opening: anyio.Lock | None = None
        self._entry: CurrentEntry[Session] | None = None

    def __repr__(self) -> str:
        status = "not open" if self._inner is None else self._inner.status
        return f"<Session {self._session_id!r} {status}>"

    @property
    def inner(self) -> session.Session:
        """The same handle of the async client, whose event loop is in another thread."""
        return self._inner or self._client.portal.run(self._open)

    async def _opened(self) -> session.Session:
        return self._inner or await self._client.portal.wait(self._open)

    def __await__(self) -> Generator[Any, None, SessionBlock]:
        return self
        yield

    def __enter__(self) -> Session:
        self._begin()
        try:
            self._client.portal.run(self._open_block)
            return self._enter()
        except BaseException:
            if self._abandon():
                self._client.portal.run(self._end)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._entry is not None
        current_sessions.leave(self._entry)
        if self._client.is_open:
            self._client.portal.run(self._end)

    async def __aenter__(self) -> Session:
        self._begin()
        try:
            await self._client.portal.wait(self._open_block)
            return self._enter()
        except BaseException:
            if self._abandon():
                with anyio.CancelScope(shield=True):
                    await self._client.portal.wait(self._end)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._entry is not None
        current_sessions.leave(self._entry)
        if self._client.is_open:
            with anyio.CancelScope(shield=True):
                await self._client.portal.wait(self._end)

    def _begin(self) -> None:
        if self._is_entered:
            raise RuntimeError("this block was entered before; ask for another one")
        self._is_entered = True

    def _enter(self) -> Session:
        self._entry = current_sessions.enter(self._space, self)
        return self

    # These run in the client's event loop.

    async def _open(self) -> session.Session:
        """Open the session, once. When the caller of a block is cancelled meanwhile, it is closed as soon as it is open."""
        self._opening = self._opening or anyio.Lock()
        with anyio.CancelScope(shield=True):
            async with self._opening:
                if self._inner is None:
                    self._inner = await self._space.open(self._session_id, **self._options)
            if self._is_abandoned:
                await self._end()
        assert self._inner is not None
        return self._inner

    async def _open_block(self) -> None:
        inner = await self._open()
        if not inner.attached:
            inner.children = []

    def _abandon(self) -> bool:
        """Give up a session that is being opened; return whether it is open already and has to be closed."""
        self._is_abandoned = True
        return self._inner is not None

    async def _end(self) -> None:
        if self._inner is not None and not self._inner.attached:
            await end_session(self._inner)


__all__ = ["SessionBlock"]
