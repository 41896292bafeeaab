"""The GET side of HTTP+SSE (2024-11-05)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from mcp.server.runner import serve_dual_era_loop
from mcp.server.sse import SseServerTransport
from mcp.shared.message import SessionMessage
from starlette.types import Receive, Scope, Send

from ..protocol.server import StateholdServer
from .bounded_protocol import HOLD_UNSENT


class Sse:
    """One connection. Its first request decides the protocol era."""

    def __init__(self, server: StateholdServer, transport: SseServerTransport) -> None:
        self._server = server
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._transport.connect_sse(scope, receive, send) as (read_stream, write_stream):
            # Not Server.run(): it would enter the lifespan once per connection.
            await serve_dual_era_loop(
                self._server,
                read_stream,
                WaitingMessages(write_stream, scope.get(HOLD_UNSENT, _ignore)),
                lifespan_state={},
                init_options=self._server.create_initialization_options(),
            )


class WaitingMessages:
    """Passes messages on to `stream`, and counts the bytes of those that wait behind another with `hold`.

    Messages of any number of requests wait for one connection, whose transport knows only the first.
    """

    def __init__(self, stream: Any, hold: Callable[[int], None]) -> None:
        self._stream = stream
        self._hold = hold
        self._sending = 0

    async def send(self, item: SessionMessage, /) -> None:
        size = 0
        if self._sending:
            size = len(item.message.model_dump_json(by_alias=True, exclude_unset=True))
        self._sending += 1
        self._hold(size)
        try:
            await self._stream.send(item)
        finally:
            self._sending -= 1
            self._hold(-size)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def _ignore(size: int) -> None: ...
