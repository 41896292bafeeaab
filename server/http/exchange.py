"""Tool calls over HTTP: the bodies of requests, read once within a limit, and the responses to plain calls."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import anyio
from mcp.server.connection import Connection
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...sessions.json_codec import JSON, encode
from ..asgi import has_disconnected, replay_messages, wait_disconnected
from ..plain_calls import PlainCall, ToolCall
from ..protocol.error_translation import invalid_request

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

Head = dict[bytes, bytes]
"""The headers of a POST. A request that has one twice that the fast path reads has no Head."""


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A POST whose headers the fast path understands, and the ASGI channels of its answer."""

    head: Head
    scope: Scope
    receive: Receive
    send: Send


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


class CallResponse(PlainCall):
    """The response to one tool call. It lives until end()."""

    transport = _TRANSPORT
    headers: Headers = ()
    """Headers of the response besides those of its body."""

    def __init__(self, request: PlainRequest, call: ToolCall, connection: Connection) -> None:
        super().__init__(call, connection, {}, Request(request.scope))
        self.request = request
        self.started_at = anyio.current_time()
        self.is_watched = False
        self._stream: anyio.Lock | None = None
        """The lock of the event stream; None until the first event, which makes the response a stream."""
        self._written_at = self.started_at
        self._watch_end: anyio.Event | None = None

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
        message = self._message_of(result)
        status = self._status_of(result) if isinstance(result, ErrorData) else 200
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
        self._cancel(CONNECTION_CLOSED, "The access of this caller was revoked")

    async def client_left(self) -> bool:
        return await has_disconnected(self.request.receive)

    async def _send_pings(self, seconds: float) -> None:
        while True:
            await anyio.sleep_until(self._written_at + seconds)
            if anyio.current_time() >= self._written_at + seconds:
                await self._write(b": ping\r\n\r\n")


def encode_event(message: JSON) -> bytes:
    """Return a message as an event of a stream."""
    return b"event: message\r\ndata: " + encode(message) + b"\r\n\r\n"
