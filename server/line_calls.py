"""The fast path of plain tool calls over lines: a pipe, a terminal or a local socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import orjson
from anyio.abc import TaskGroup
from mcp.server.connection import Connection
from mcp.shared.dispatcher import CallOptions, as_request_id, coerce_request_id
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import PROTOCOL_VERSION_META_KEY, ErrorData
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..sessions.json_codec import JSON, encode
from .plain_calls import PlainCall, ToolCall, modern_connection, parse_call, parse_message
from .protocol.server import StateholdServer
from .sdk.access import RequestContext
from .sdk.caller import connection_of, is_modern

MAX_CALLS: Final = 64
"""Calls of one client at once on the fast path; the SDK gets further ones, for whose lines the client waits longer."""
END_SECONDS: Final = 1.0
"""Seconds that end() waits for the calls."""

_LEGACY: Final = TransportContext(kind="jsonrpc", can_send_request=True)
_MODERN: Final = TransportContext(kind="jsonrpc", can_send_request=False)

Write = Callable[[bytes], Awaitable[None]]


class LineCall(PlainCall):
    """A plain call over lines. It lives until end().

    Its notifications and its answer are written in the order in which they are sent.
    """

    def __init__(
        self,
        call: ToolCall,
        connection: Connection,
        state: JSON,
        write: Write,
        on_end: Callable[[LineCall], None],
    ) -> None:
        super().__init__(call, connection, state)
        self.transport = (
            _MODERN if connection.protocol_version in MODERN_PROTOCOL_VERSIONS else _LEGACY
        )
        self._write_bytes = write
        self._on_end = on_end

    @property
    def can_send_request(self) -> bool:
        return self.transport.can_send_request and not self._is_ended

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSON:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._connection.outbound.send_raw_request(method, params, opts)

    async def _write(self, item: JSON) -> None:
        if not self._is_ended:
            await self._write_bytes(_encode_line(item))

    async def answer(self, result: JSON | ErrorData) -> None:
        self._is_ended = True
        # A cancelled request is not answered, also if its result came first.
        if not self.scope.cancel_called or self.cancel_error is not None:
            await self._write_bytes(_encode_line(self._message_of(result)))

    def end(self) -> None:
        self._is_ended = True
        self._on_end(self)


class LineCalls:
    """The plain calls of one client. take() begins them after the first one, and end() ends them."""

    def __init__(
        self,
        server: StateholdServer,
        state: JSON,
        tasks: TaskGroup,
        write: Write,
        on_answered: Callable[[str | int], None],
    ) -> None:
        """`state` is the lifespan state of the connection. `on_answered` gets the id of each call that is over."""
        self._server = server
        self._state = state
        self._tasks = tasks
        self._write = write
        self._on_answered = on_answered
        self._calls: dict[LineCall, None] = {}
        self._call_ended: anyio.Event | None = None
        self._is_open = False
        self._legacy: Connection | None = None
        """The connection of a legacy client; a modern one has none."""

    def open(self, ctx: RequestContext) -> None:
        """Take calls from now on, in the protocol era of this first one, which the SDK has accepted."""
        if self._is_open:
            return
        self._is_open = True
        if not is_modern(ctx):
            self._legacy = connection_of(ctx)
            # So that no call runs during the later cleanup of the connection.
            self._legacy.exit_stack.push_async_callback(self.end)

    def take(self, line: bytes) -> str | int | None:
        """Begin the call of a line and return its id. Return None if the SDK has to answer the line."""
        if not self._is_open or b'"tools/call"' not in line or len(self._calls) >= MAX_CALLS:
            return None
        message = parse_message(line)
        call = None if message is None else parse_call(message)
        if message is None or call is None:
            return None
        connection = self._legacy or modern_connection(message)
        if self._legacy is not None and PROTOCOL_VERSION_META_KEY in call.meta:
            return None
        if connection is None:
            return None
        running = LineCall(call, connection, self._state, self._write, self._finish)
        self._calls[running] = None
        self._tasks.start_soon(running.respond, self._server)
        return call.id

    def _finish(self, call: LineCall) -> None:
        del self._calls[call]
        self._on_answered(call.request_id)
        if self._call_ended is not None:
            self._call_ended.set()

    def cancel(self, request_id: object) -> None:
        """Cancel the call with this id, if there is one; the newest of several, as the SDK does."""
        known_id = as_request_id(request_id)
        wanted_id = None if known_id is None else coerce_request_id(known_id)
        for call in reversed(self._calls):
            if coerce_request_id(call.request_id) == wanted_id:
                call.scope.cancel()
                return

    async def end(self) -> None:
        """Take no more calls, end those that run, and wait for their answers. May be called twice."""
        self._is_open = False
        for call in self._calls:
            call.close()
        with anyio.move_on_after(END_SECONDS):
            while self._calls:
                self._call_ended = anyio.Event()
                await self._call_ended.wait()


def _encode_line(message: JSON) -> bytes:
    try:
        return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return encode(message) + b"\n"
