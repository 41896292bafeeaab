"""The response to one tool call over HTTP: one JSON body, or an event stream if a message precedes the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData
from starlette.requests import Request
from starlette.types import Send

from ...sessions.json_codec import JSON, encode
from ..asgi import has_disconnected, wait_disconnected
from ..sdk.access import RequestContext
from .request import SESSION, PlainRequest, ToolCall

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
        self._progress_token = call.progress_token
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
        meta = call.typed_meta
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
        if self._progress_token is None:
            return
        params: JSON = {"progressToken": self._progress_token, "progress": progress}
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
        self.end_watch()

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
