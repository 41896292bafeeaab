"""Tool calls of legacy clients over Streamable HTTP: their sessions, the questions to them, and responses that outlive
connections.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.streamable_http import REQUEST_CANCELLED, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import CallOptions, as_request_id, coerce_request_id
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, ErrorData, jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, is_version_at_least

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ..plain_calls import ToolCall, parse_call
from ..protocol.request_checks import refuse_unencodable
from ..protocol.server import StateholdServer
from ..sdk.http_sessions import TransportSessions, in_flight, open_transport, send_on
from ..sdk.replay import RETRY_MS, SessionEvents
from .exchange import (
    SESSION,
    VERSION,
    AcceptedResponse,
    CallResponse,
    Head,
    Headers,
    PlainRequest,
    encode_event,
)

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


_VERSIONS: Final = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)

RESUMABLE: Final = "2025-11-25"
"""The first version whose clients resume a stream."""
END_SECONDS: Final = 1.0
"""Seconds for which an ending session waits for its calls; the SDK gives all cleanup of the session five."""


class LegacySession:
    """The open calls of one transport session on the fast path, and their questions to the client.

    It lives from the first call to the end of the SDK's connection, which ends the calls.
    """

    def __init__(
        self,
        session: bytes,
        connection: Connection,
        transport: StreamableHTTPServerTransport,
        events: SessionEvents | None = None,
    ) -> None:
        self._id = session
        self._events = events
        self._connection = connection
        self._is_ended = False
        self._call_ended: anyio.Event | None = None
        self._calls: set[LegacyResponse] = set()
        self._questions = StreamQuestions()
        self.transport = transport

    async def end(self) -> None:
        """End the calls and wait for their end, so that no call runs during the later cleanup of the connection."""
        self._is_ended = True
        for call in list(self._calls):
            call.close()
        with anyio.move_on_after(END_SECONDS):
            while self._calls:
                self._call_ended = anyio.Event()
                await self._call_ended.wait()

    def _finish(self, call: LegacyResponse) -> None:
        self._calls.discard(call)
        if self._call_ended is not None:
            self._call_ended.set()

    def in_flight(self) -> AbstractContextManager[None]:
        """Count a request of the transport session, which is then not ended as idle meanwhile."""
        return in_flight(self.transport)

    def accept(
        self, request: PlainRequest, message: JSON
    ) -> LegacyResponse | AcceptedResponse | None:
        """Return the response to a message, None when the SDK has to answer it."""
        if self._is_ended or self.transport.is_terminated:
            return None
        if "method" not in message:
            return AcceptedResponse(self._id) if self._pass_answer(message) else None
        if "id" not in message:
            return AcceptedResponse(self._id) if self._cancel_call(message) else None
        call = parse_call(message)
        if call is None:
            return None
        response = LegacyResponse(
            request,
            call,
            self._connection,
            self._questions,
            on_end=self._finish,
            headers=((SESSION, self._id),),
            transport=self.transport,
            events=self._events,
        )
        self._calls.add(response)
        return response

    def _pass_answer(self, message: JSON) -> bool:
        """Pass an answer to its question. Return False if there is no such question, or the answer is malformed."""
        question_id: object = message.get("id")
        question = self._questions.get(question_id) if isinstance(question_id, str) else None
        outcome = _parse_outcome(message)
        if question is None or outcome is None:
            return False
        question.resolve(outcome)
        return True

    def _cancel_call(self, message: JSON) -> bool:
        """Cancel the call that a notification names. Return False if there is no such call on the fast path."""
        params: object = message.get("params")
        if message["method"] != "notifications/cancelled" or not isinstance(params, dict):
            return False
        request_id = as_request_id(cast("JSON", params).get("requestId"))
        if request_id is None:
            return False
        wanted_id = coerce_request_id(request_id)
        calls = [call for call in self._calls if coerce_request_id(call.request_id) == wanted_id]
        for call in calls:
            call.cancel()
        return bool(calls)


class LegacyEra:
    """The sessions of one manager whose calls take the fast path."""

    def __init__(self, server: StateholdServer, manager: StreamableHTTPSessionManager) -> None:
        self._server = server
        self._manager = manager
        self._sessions: dict[str, LegacySession] = {}

    def session(self, head: Head, user: object) -> LegacySession | None:
        """Return the open session that a request of `user` may use, None if the SDK has to handle the request."""
        session_header = head.get(SESSION)
        if session_header is None or head.get(VERSION, b"2025-03-26") not in _VERSIONS:
            return None
        session_id = session_header.decode("latin-1")
        transport = open_transport(self._manager, session_id, user)
        if transport is None:
            return None
        session = self._sessions.get(session_id)
        if session is not None:
            return session
        connection = self._server.connection(session_id)
        if connection is None or not connection.initialize_accepted:
            return None
        # A resumable stream begins with an event without data, which older clients do not understand.
        can_resume = is_version_at_least(connection.protocol_version, RESUMABLE)
        manager = self._manager
        events = (
            manager.events(session_id)
            if can_resume and isinstance(manager, TransportSessions)
            else None
        )
        session = LegacySession(session_header, connection, transport, events)
        self._sessions[session_id] = session
        connection.exit_stack.push_async_callback(self._end, session_id)
        return session

    async def _end(self, session_id: str) -> None:
        await self._sessions.pop(session_id).end()


def _parse_outcome(message: JSON) -> JSON | ErrorData | None:
    """Return the result or error of a well-formed answer, else None."""
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict) and "error" not in message:
        try:
            refuse_unencodable(cast("JSON", result))
        except InvalidArgument as refusal_error:
            return ErrorData(code=INVALID_PARAMS, message=refusal_error.message)
        return cast("JSON", result)
    if not isinstance(error, dict) or "result" in message:
        return None
    return _parse_error(cast("JSON", error))


def _parse_error(error: JSON) -> ErrorData | None:
    code: Any = error.get("code")
    text: Any = error.get("message")
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(text, str):
        return None
    return ErrorData(code=code, message=text, data=error.get("data"))
