"""Tool calls over HTTP: the bodies of requests, read once within a limit, those that may take the fast path, and their
responses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, RequestParamsMeta
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...sessions.json_codec import JSON, encode, loads
from ...sessions.metrics.spans import SPANS
from ...tools.upstream.transports.trace_context import is_tracing
from ..asgi import has_disconnected, replay_messages, wait_disconnected
from ..protocol.error_translation import invalid_request
from ..sdk.access import RequestContext

VERSION: Final = b"mcp-protocol-version"
SESSION: Final = b"mcp-session-id"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
PARAM: Final = b"mcp-param-"

_ACCEPT_VALUES: Final = frozenset(
    (b"application/json, text/event-stream", b"text/event-stream, application/json")
)
_JSON_TYPES: Final = frozenset(
    (
        b"application/json",
        b"application/json; charset=utf-8",
        b"application/json;charset=utf-8",
    )
)
_READ_HEADERS: Final = frozenset(
    (VERSION, SESSION, METHOD, NAME, b"accept", b"content-type", b"content-length")
)
_TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")

Head = dict[bytes, bytes]
"""The headers of a POST. A request that has one twice that the fast path reads has no Head."""


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A POST whose headers the fast path understands, and the ASGI channels of its answer."""

    head: Head
    scope: Scope
    receive: Receive
    send: Send


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


def read_head(scope: Scope) -> Head | None:
    """Return the headers of a POST that may take the fast path, None for any other."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    head: Head = dict(headers)
    if len(head) < len(headers):
        names = [name for name, _ in headers if name in _READ_HEADERS or name.startswith(PARAM)]
        if len(set(names)) < len(names):
            return None
    length = head.get(b"content-length", b"")
    if not length.isdigit() or len(length) > 8 or int(length) > BODY_LIMIT:
        return None
    is_plain = head.get(b"accept") in _ACCEPT_VALUES and head.get(b"content-type") in _JSON_TYPES
    return head if is_plain else None


def parse_message(body: bytes) -> JSON | None:
    """Return the JSON-RPC message of a body, None if the body is not certainly one."""
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


BODY_LIMIT: Final = 4 * 2**20
"""The SDK's limit of a body. A larger request is passed to the SDK, which refuses it."""


async def read_body(receive: Receive) -> tuple[bytes | None, list[Message]]:
    """Return the body and its ASGI messages. The body is None if the client disconnected or sent more than BODY_LIMIT."""
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return None, messages
        size += len(message.get("body", b""))
        if size > BODY_LIMIT:
            return None, messages
        if not message.get("more_body", False):
            break
    if len(messages) == 1:
        return messages[0].get("body", b""), messages
    return b"".join(message.get("body", b"") for message in messages), messages


class WholeBody:
    """Reads the body of a POST before it calls `app`, which would treat a client that leaves meanwhile as an error.

    It refuses a request whose id is null or a fraction, which the SDK would take for a notification, and a batch.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, messages = await read_body(receive)
        refusal = None if body is None else _refusal(body)
        if refusal is not None:
            answer = refusal.model_dump(mode="json", by_alias=True, exclude_unset=True)
            await JSONResponse(answer, status_code=400)(scope, receive, send)
            return
        if body is not None or messages[-1]["type"] != "http.disconnect":
            await self._app(scope, replay_messages(messages, receive), send)


def _refusal(body: bytes) -> JSONRPCError | None:
    try:
        return invalid_request(json.loads(body))
    except (ValueError, RecursionError):
        return None


PING_SECONDS: Final = 15.0
"""Seconds of silence after which a ping is sent in the stream, which begins then; the SDK's value."""

Headers = tuple[tuple[bytes, bytes], ...]

_TRANSPORT: Final = TransportContext(kind="streamable-http", can_send_request=False)
_JSON: Final = (b"content-type", b"application/json")
_STREAM: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)


class AcceptedResponse:
    """The HTTP response to a message that has no answer: 202 without a body."""

    def __init__(self, session: bytes) -> None:
        self._headers = [
            (b"content-length", b"0"),
            (b"content-type", b"application/json"),
            (SESSION, session),
        ]

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 202, "headers": self._headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class CallResponse:
    """The response to one tool call. It lives until end(), and is the SDK's DispatchContext of the call.

    Any task may send notifications; those after the answer are dropped. `scope` is the cancel scope of the call: a cancelled
    call is answered with `cancel_error`, or not at all if that is None.
    """

    transport = _TRANSPORT
    message_metadata = None
    headers: Headers = ()
    """Headers of the response besides those of its body."""

    def __init__(self, request: PlainRequest, call: ToolCall, connection: Connection) -> None:
        self.request = request
        self.request_id = call.id
        self.started_at = anyio.current_time()
        self.is_watched = False
        self.scope = anyio.CancelScope()
        self.cancel_error: ErrorData | None = None
        self._call = call
        self._connection = connection
        self._stream: anyio.Lock | None = None
        """The lock of the event stream; None until the first event, which makes the response a stream."""
        self._written_at = self.started_at
        self._watch_end: anyio.Event | None = None
        self._is_ended = False

    def create_context(self) -> RequestContext:
        """Return the SDK's context of the request.

        It refers to the response. A reference back would leave both, with the request, to the garbage collector.
        """
        call, connection = self._call, self._connection
        meta = cast("RequestParamsMeta | None", call.params.get("_meta"))
        return RequestContext(
            session=ServerSession(self, connection, request_meta=meta),
            lifespan_context=cast("Any", {}),
            protocol_version=connection.protocol_version,
            method="tools/call",
            params=call.params,
            request_id=call.id,
            meta=meta,
            request=Request(self.request.scope),
        )

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
        params: JSON = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.notify("notifications/progress", params)

    async def _write(self, item: JSON | bytes) -> None:
        """Send a message, or other bytes, in the event stream. Begins the stream first if necessary."""
        is_begun = self._stream is not None
        stream = self._stream = self._stream or anyio.Lock()
        async with stream:
            if self._is_ended:
                return
            if not is_begun:
                await self._send_head(200, _STREAM)
            self._written_at = anyio.current_time()
            data = b"" if is_begun else await self._stream_prologue()
            data += item if isinstance(item, bytes) else await self._encode_event(item)
            await self.request.send({"type": "http.response.body", "body": data, "more_body": True})

    async def _stream_prologue(self) -> bytes:
        """Return the bytes that begin a stream."""
        return b""

    async def _encode_event(self, message: JSON) -> bytes:
        """Return a message as an event of the stream."""
        return encode_event(message)

    async def answer(self, result: JSON | ErrorData) -> None:
        """End the response. Called once."""
        message: JSON = {"jsonrpc": "2.0", "id": self.request_id}
        status = 200
        if isinstance(result, ErrorData):
            status = self._status_of(result)
            message["error"] = result.model_dump(mode="json", exclude_none=True)
        else:
            message["result"] = result
        if self._stream is None:
            self._is_ended = True
            await self._send_whole(encode(message), status)
            return
        async with self._stream:
            self._is_ended = True
            await self._end_stream(message)

    async def _end_stream(self, message: JSON) -> None:
        data = await self._encode_event(message)
        await self.request.send({"type": "http.response.body", "body": data, "more_body": False})

    async def _send_whole(self, body: bytes, status: int) -> None:
        length = (b"content-length", b"%d" % len(body))
        await self._send_head(status, (length, _JSON))
        await self.request.send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send_head(self, status: int, headers: Headers) -> None:
        await self.request.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *self.headers],
            }
        )

    def _status_of(self, error: ErrorData) -> int:
        return ERROR_CODE_HTTP_STATUS.get(error.code, 200)

    async def watch(self, ping_seconds: float) -> None:
        """Send pings, and call on_disconnect() if the client disconnects, until end() or end_watch()."""
        self._watch_end = anyio.Event()
        if self._is_ended:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_disconnect)
            tasks.start_soon(self._send_pings, ping_seconds)
            await self._watch_end.wait()
            tasks.cancel_scope.cancel()

    def end(self) -> None:
        """End the response and watch(). Called when the call is over, whether it was answered or not."""
        self._is_ended = True
        if self._watch_end is not None:
            self._watch_end.set()

    def end_watch(self) -> None:
        if self._watch_end is not None:
            self._watch_end.set()

    async def _watch_disconnect(self) -> None:
        await wait_disconnected(self.request.receive)
        self.on_disconnect()

    def on_disconnect(self) -> None:
        """Cancel the call: a 2026-07-28 client cancels by closing the stream."""
        self.scope.cancel()

    def revoke(self) -> None:
        """End the call because the access of its caller is revoked."""
        message = "The access of this caller was revoked"
        self.cancel_error = ErrorData(code=CONNECTION_CLOSED, message=message)
        self.scope.cancel()

    async def client_left(self) -> bool:
        """Whether the client disconnected before the answer and cannot reconnect for it."""
        return await has_disconnected(self.request.receive)

    async def _send_pings(self, seconds: float) -> None:
        while True:
            await anyio.sleep_until(self._written_at + seconds)
            if anyio.current_time() >= self._written_at + seconds:
                await self._write(b": ping\r\n\r\n")


def encode_event(message: JSON) -> bytes:
    """Return a message as an event of a stream."""
    return b"event: message\r\ndata: " + encode(message) + b"\r\n\r\n"
