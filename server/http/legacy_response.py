"""The response to one legacy tool call over Streamable HTTP: it can ask the client, and outlives its connection."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
from mcp.server.connection import Connection
from mcp.server.streamable_http import REQUEST_CANCELLED, StreamableHTTPServerTransport
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, jsonrpc_message_adapter

from ...sessions.json_codec import JSON
from ..sdk.access import send_on
from ..sdk.replay import RETRY_MS, SessionEvents
from .request import PlainRequest, ToolCall
from .response import CallResponse, Headers, encode_event

WITHDRAW_SECONDS: Final = 5.0
"""Seconds for which the cancelled notification of a question may delay its cancelled call; the SDK's value."""

RESUME_SECONDS: Final = 0.5
"""Seconds after which a stream begins with an event id, with which the client can resume it. A shorter call is answered
without a stream, after which many clients reuse their connection."""

_TRANSPORT: Final = TransportContext(kind="streamable-http", can_send_request=True)


class StreamQuestion:
    """A request to the client that waits for one answer."""

    def __init__(self, number: str) -> None:
        self.id = number
        self._outcome: JSON | ErrorData = {}
        self._resolved_event = anyio.Event()

    def resolve(self, outcome: JSON | ErrorData) -> None:
        """Set the answer or error. A second one is dropped."""
        if not self._resolved_event.is_set():
            self._outcome = outcome
            self._resolved_event.set()

    async def answer(self) -> JSON:
        """Wait for the answer.

        Raises:
            MCPError: the client answered with an error, or the call is over.
        """
        await self._resolved_event.wait()
        if isinstance(self._outcome, ErrorData):
            raise MCPError.from_error_data(self._outcome)
        return self._outcome


class StreamQuestions:
    """The open questions to the client of one session, by their ids."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[str, StreamQuestion] = {}

    def ask(self) -> StreamQuestion:
        # Not an integer: those are the ids of the SDK's own requests to the client.
        question = StreamQuestion(f"statehold-{next(self._numbers)}")
        self._open[question.id] = question
        return question

    def get(self, question_id: str) -> StreamQuestion | None:
        return self._open.get(question_id)

    def forget(self, question: StreamQuestion) -> None:
        self._open.pop(question.id, None)


class LegacyResponse(CallResponse):
    """The response to one tool call of a transport session. It lives until end().

    A client that disconnects does not cancel its call (2025-06-18, basic/transports), but questions to it fail. A client
    cancels with a notification; the call is then answered with an error. So it is when the session ends.
    """

    transport = _TRANSPORT

    def __init__(
        self,
        request: PlainRequest,
        call: ToolCall,
        connection: Connection,
        questions: StreamQuestions,
        *,
        on_end: Callable[[LegacyResponse], None],
        headers: Headers,
        transport: StreamableHTTPServerTransport | None = None,
        events: SessionEvents | None = None,
    ) -> None:
        super().__init__(request, call, connection)
        self.headers = headers
        self._session_questions = questions
        self._on_end = on_end
        self._session_transport = transport
        self._events = events
        """The store of the stream's events for a client that reconnects, None if the client cannot resume."""
        self._questions: set[StreamQuestion] = set()
        self._is_disconnected = False

    @property
    def can_send_request(self) -> bool:
        return not self._is_ended and not self._is_disconnected

    def cancel(self) -> None:
        """End the call because its caller cancelled it."""
        self._cancel(REQUEST_CANCELLED, "Request cancelled")

    def close(self) -> None:
        """End the call because its session ends."""
        self._cancel(CONNECTION_CLOSED, "Connection closed")

    def _cancel(self, code: int, message: str) -> None:
        self.cancel_error = ErrorData(code=code, message=message)
        self.scope.cancel()

    def end(self) -> None:
        super().end()
        self._on_end(self)
        for question in self._questions:
            question.resolve(ErrorData(code=CONNECTION_CLOSED, message="The call is over"))

    def on_disconnect(self) -> None:
        self._is_disconnected = True
        self.end_watch()
        for question in self._questions:
            # No answer will come; without this the call would wait for it for minutes.
            question.resolve(ErrorData(code=CONNECTION_CLOSED, message="The client is gone"))

    async def client_left(self) -> bool:
        if self._events is not None and self._stream is not None:
            return False
        return self._is_disconnected or await super().client_left()

    def _status_of(self, error: ErrorData) -> int:
        return 200

    async def _send_pings(self, seconds: float) -> None:
        if self._events is not None:
            await anyio.sleep_until(self.started_at + RESUME_SECONDS)
            if self._stream is None:
                # Begin the stream: a client that loses its connection can only resume with the id of an event.
                await self._write(b"")
        await super()._send_pings(seconds)

    async def _write(self, item: JSON | bytes) -> None:
        if not self._is_disconnected:
            await super()._write(item)
        elif not isinstance(item, bytes) and not self._is_ended:
            await self._store_for_replay(item)

    async def _stream_prologue(self) -> bytes:
        if self._events is None:
            return b""
        event_id = await self._events.store_event(str(self.request_id), None)
        return f"id: {event_id}\r\nretry: {RETRY_MS}\r\ndata: \r\n\r\n".encode()

    async def _encode_event(self, message: JSON) -> bytes:
        if self._events is None:
            return encode_event(message)
        message_model = jsonrpc_message_adapter.validate_python(message, by_name=False)
        event_id = await self._events.store_event(str(self.request_id), message_model)
        return f"id: {event_id}\r\n".encode() + encode_event(message)

    async def _end_stream(self, message: JSON) -> None:
        if self._is_disconnected:
            await self._store_for_replay(message)
        else:
            await super()._end_stream(message)

    async def _store_for_replay(self, message: JSON) -> None:
        """Pass a message to the transport session, which stores it until the client reconnects."""
        transport = self._session_transport
        if transport is not None and self._events is not None and self._stream is not None:
            message_model = jsonrpc_message_adapter.validate_python(message, by_name=False)
            await send_on(transport, message_model, self.request_id)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSON:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        question = self._session_questions.ask()
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
            self._session_questions.forget(question)

    async def _withdraw(self, question: StreamQuestion) -> None:
        with anyio.move_on_after(WITHDRAW_SECONDS, shield=True):
            params = {"requestId": question.id, "reason": "caller cancelled"}
            await self.notify("notifications/cancelled", params)
