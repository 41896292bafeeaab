"""A read stream that reports its end before its reader does."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from mcp.shared.message import SessionMessage

from ...processes.streams import MessageStream
from ..sdk import ReadStream
from .pipe_requests import PipeRequests


class EndWatchingStream(MessageStream):
    """A read stream that calls `on_end` when it ends, before the dispatcher fails the waiting requests.

    It hands the answers to requests of PipeRequests over to them, in the order of arrival.
    """

    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        pipe_requests: PipeRequests | None,
        on_end: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._pipe_requests = pipe_requests
        self._on_end = on_end

    async def receive(self) -> SessionMessage | Exception:
        try:
            item = await self._inner.receive()
            while self._pipe_requests is not None and self._pipe_requests.take(item):
                item = await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()


__all__ = ["EndWatchingStream"]
