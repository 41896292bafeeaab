"""The response of one legacy call over Streamable HTTP: it can ask questions, and continues without its client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import anyio
from mcp.server.connection import Connection
from mcp.server.streamable_http import REQUEST_CANCELLED, StreamableHTTPServerTransport
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, jsonrpc_message_adapter

from ...sessions.json_codec import JSON
from ..sdk.access import send_on
from .fast_request import PlainRequest, ToolCall
from .replay import RETRY_MS, SessionEvents
from .response import CallResponse, Headers, event

WITHDRAW_SECONDS: Final = 5.0
"""Seconds for which withdrawing a question may delay a cancelled call; the SDK's value."""

RESUME_SECONDS: Final = 0.5
"""Seconds after which the client of a call gets an event id, with which it can resume a lost stream. A shorter call is
answered without a stream, so that many clients keep their connection."""

_TRANSPORT: Final = TransportContext(kind="streamable-http", can_send_request=True)


class Question:
    """A request to the client that waits for one answer."""

    def __init__(self, number: str) -> None:
        self.id = number
        self._outcome: JSON | ErrorData = {}
        self._settled = anyio.Event()

    def settle(self, outcome: JSON | ErrorData) -> None:
        """Set the answer; a second one is dropped."""
        if not self._settled.is_set():
            self._outcome = outcome
            self._settled.set()

    async def answer(self) -> JSON:
        """Wait for the answer.

        Raises:
            MCPError: the client answered with an error, or the call is over.
        """
        await self._settled.wait()
        if isinstance(self._outcome, ErrorData):
            raise MCPError.from_error_data(self._outcome)
        return self._outcome


class OpenCalls(Protocol):
    """The registry of the calls of a session and of their questions."""

    def finish(self, call: LegacyResponse) -> None: ...

    def ask(self) -> Question: ...

    def forget(self, question: Question) -> None: ...


class LegacyResponse(CallResponse):
    """One request of a session and its response; it lives until end().

    A client that disconnects does not cancel its call (2025-06-18, basic/transports), but its questions fail. A client
    cancels by a notification; the call is then answered with an error, as it is when its session ends.
    """

    transport = _TRANSPORT

    def __init__(
        self,
        request: PlainRequest,
        call: ToolCall,
        connection: Connection,
        calls: OpenCalls,
        *,
        headers: Headers,
        transport: StreamableHTTPServerTransport | None = None,
        events: SessionEvents | None = None,
    ) -> None:
        super().__init__(request, call, connection)
        self.headers = headers
        self._calls = calls
        self._session_transport = transport
        self._events = events
        """The stored events of the stream for a client that reconnects, None for one that cannot."""
        self._questions: set[Question] = set()
        self._disconnected = False

    @property
    def can_send_request(self) -> bool:
        return not self._ended and not self._disconnected

    def cancel(self) -> None:
        """End the call because its caller cancelled it."""
        self._stop(REQUEST_CANCELLED, "Request cancelled")

    def close(self) -> None:
        """End the call because its session ends."""
        self._stop(CONNECTION_CLOSED, "Connection closed")

    def _stop(self, code: int, message: str) -> None:
        self.cancel_error = ErrorData(code=code, message=message)
        self.scope.cancel()

    def end(self) -> None:
        super().end()
        self._calls.finish(self)
        for question in self._questions:
            question.settle(ErrorData(code=CONNECTION_CLOSED, message="The call is over"))

    def on_disconnect(self) -> None:
        self._disconnected = True
        self.stop_watching()
        for question in self._questions:
            # The result would not reach it either; without this the call waits for its answer for minutes.
            question.settle(ErrorData(code=CONNECTION_CLOSED, message="The client is gone"))

    async def client_left(self) -> bool:
        if self._events is not None and self._stream is not None:
            return False
        return self._disconnected or await super().client_left()

    def _status(self, error: ErrorData) -> int:
        return 200

    async def _ping(self, seconds: float) -> None:
        if self._events is not None:
            await anyio.sleep_until(self.began + RESUME_SECONDS)
            if self._stream is None:
                # A client that loses this connection can only resume the stream with the id of an event.
                await self._write(b"")
        await super()._ping(seconds)

    async def _write(self, item: JSON | bytes) -> None:
        if not self._disconnected:
            await super()._write(item)
        elif not isinstance(item, bytes) and not self._ended:
            await self._send_on(item)

    async def _opening(self) -> bytes:
        if self._events is None:
            return b""
        number = await self._events.store_event(str(self.request_id), None)
        return f"id: {number}\r\nretry: {RETRY_MS}\r\ndata: \r\n\r\n".encode()

    async def _event(self, message: JSON) -> bytes:
        if self._events is None:
            return event(message)
        stored = jsonrpc_message_adapter.validate_python(message, by_name=False)
        number = await self._events.store_event(str(self.request_id), stored)
        return f"id: {number}\r\n".encode() + event(message)

    async def _end_stream(self, message: JSON) -> None:
        if self._disconnected:
            await self._send_on(message)
        else:
            await super()._end_stream(message)

    async def _send_on(self, message: JSON) -> None:
        """Pass a message to the session, which stores it until the client reconnects."""
        transport = self._session_transport
        if transport is not None and self._events is not None and self._stream is not None:
            stored = jsonrpc_message_adapter.validate_python(message, by_name=False)
            await send_on(transport, stored, self.request_id)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSON:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        question = self._calls.ask()
        request: JSON = {"jsonrpc": "2.0", "id": question.id, "method": method}
        if params:
            request["params"] = dict(params)
        self._questions.add(question)
        try:
            await self._write(request)
            return await question.answer()
        except anyio.get_cancelled_exc_class():
            await self._withdraw(question)
            raise
        finally:
            self._questions.discard(question)
            self._calls.forget(question)

    async def _withdraw(self, question: Question) -> None:
        with anyio.move_on_after(WITHDRAW_SECONDS, shield=True):
            params = {"requestId": question.id, "reason": "caller cancelled"}
            await self.notify("notifications/cancelled", params)


__all__ = ["LegacyResponse", "Question"]
