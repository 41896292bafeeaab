"""Plain tool calls, which every transport answers without the SDK's dispatcher: one door for HTTP, pipes and sockets.

For each request the SDK does much more work than the call itself. A transport recognises a plain call with parse_message()
and parse_call(), and passes everything else to the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
import orjson
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, RequestParamsMeta

from ..sessions.json_codec import JSON, loads
from ..sessions.metrics.spans import SPANS
from ..tools.upstream.transports.trace_context import is_tracing
from .protocol.server import StateholdServer
from .sdk.access import RequestContext, request_connection
from .sdk.caller import DELIVERY_SCOPE, progress_params

_TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A `tools/call` request."""

    id: str | int
    params: JSON
    meta: JSON

    @property
    def progress_token(self) -> str | int | None:
        value = self.meta.get("progressToken")
        return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def parse_message(body: bytes) -> JSON | None:
    """Return the JSON-RPC message of a body or line, None if that is not certainly one."""
    try:
        document: object = loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    message = cast("JSON", document)
    return message if message.get("jsonrpc") == "2.0" else None


def parse_call(message: JSON) -> ToolCall | None:
    """Return the tool call of a message, None if the message is not certainly one, or if the SDK has to trace it."""
    request_id, params = message.get("id"), message.get("params")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        return None
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    call_params = cast("JSON", params)
    arguments: object = call_params.get("arguments", {})
    if not isinstance(call_params.get("name"), str) or not isinstance(arguments, dict | None):
        return None
    meta: object = call_params.get("_meta", {})
    if not isinstance(meta, dict) or is_tracing():
        return None
    if SPANS.exporter is None and any(key in meta for key in _TRACE_KEYS):
        return None
    return ToolCall(request_id, call_params, cast("JSON", meta))


def modern_connection(message: JSON, headers: Mapping[str, str] | None = None) -> Connection | None:
    """Return the connection of a 2026-07-28 request, None if the SDK has to refuse the request.

    `headers` are those of its HTTP request.
    """
    route = classify_inbound_request(message, headers=headers)
    if not isinstance(route, InboundModernRoute):
        return None
    # The client's name is not validated: no code uses it, and that would cost more than all the other checks.
    try:
        capabilities = orjson.dumps(route.client_capabilities)
    except TypeError:
        return None
    return request_connection(route.protocol_version, capabilities)


class PlainCall:
    """A tool call on the fast path, and the SDK's DispatchContext of it. It lives until end().

    Any task may send notifications; those after the answer are dropped. `scope` is the cancel scope of the call: a cancelled
    call is answered with `cancel_error`, or not at all if that is None.
    """

    transport: TransportContext
    message_metadata = None

    def __init__(
        self, call: ToolCall, connection: Connection, state: JSON, request: Any = None
    ) -> None:
        """`state` is the lifespan state of the connection, `request` the HTTP request."""
        self.request_id = call.id
        self.scope = anyio.CancelScope()
        self.cancel_error: ErrorData | None = None
        self._call = call
        self._connection = connection
        self._state = state
        self._http_request = request
        self._is_ended = False

    def create_context(self) -> RequestContext:
        """Return the SDK's context of the request.

        It refers to the call. A reference back would leave both, with the request, to the garbage collector.
        """
        call, connection = self._call, self._connection
        meta = cast("RequestParamsMeta | None", call.params.get("_meta"))
        return RequestContext(
            session=ServerSession(self, connection, request_meta=meta),
            lifespan_context=self._state,
            protocol_version=connection.protocol_version,
            method="tools/call",
            params=call.params,
            request_id=call.id,
            meta=meta,
            request=self._http_request,
        )

    async def respond(self, server: StateholdServer) -> None:
        """Run the call and answer it."""
        context, is_delivered = self.create_context(), False
        try:
            answer: JSON | ErrorData | None = None
            with self.scope:
                try:
                    answer = await server.call(context)
                except MCPError as error:
                    answer = error.error
            if answer is not None:
                http = context.request
                carries_notice = http is not None and DELIVERY_SCOPE in http.scope
                is_delivered = not carries_notice or not await self.client_left()
            else:
                answer = self.cancel_error
            if answer is not None:
                await self.answer(answer)
        except BaseException:
            is_delivered = False
            raise
        finally:
            if not is_delivered:
                server.return_notice(context)
            self.end()

    async def answer(self, result: JSON | ErrorData) -> None:
        """Send the answer. Called once."""
        raise NotImplementedError

    def end(self) -> None:
        """End the call. Called when it is over, whether it was answered or not."""
        raise NotImplementedError

    async def client_left(self) -> bool:
        """Whether the client disconnected before the answer and cannot reconnect for it."""
        return False

    def _message_of(self, result: JSON | ErrorData) -> JSON:
        message: JSON = {"jsonrpc": "2.0", "id": self.request_id}
        if isinstance(result, ErrorData):
            message["error"] = result.model_dump(mode="json", exclude_none=True)
        else:
            message["result"] = result
        return message

    def close(self) -> None:
        """End the call because its connection or session ends."""
        self._cancel(CONNECTION_CLOSED, "Connection closed")

    def _cancel(self, code: int, message: str) -> None:
        self.cancel_error = ErrorData(code=code, message=message)
        self.scope.cancel()

    @property
    def can_send_request(self) -> bool:
        return False

    @property
    def cancel_requested(self) -> anyio.Event:
        # Never set: the call is cancelled through `scope`.
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSON:
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        message: JSON = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        await self._write(message)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        token = self._call.progress_token
        if token is None:
            return
        params = progress_params(token, progress, total, message)
        await self.notify("notifications/progress", params)

    async def _write(self, item: JSON) -> None:
        """Send a message of the call."""
        raise NotImplementedError
