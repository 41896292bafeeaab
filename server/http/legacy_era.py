"""The fast path for sessions of 2024-11-05 to 2025-11-25: tool calls, and answers and cancellations of running ones.

The SDK opens and ends the transport session, and answers all other requests in it. A call on the fast path counts as a
request of the session: the session is not ended as idle meanwhile, and the call ends with the session.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp_types import INVALID_PARAMS, ErrorData
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, is_version_at_least

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ..protocol.request_checks import refuse_unencodable
from ..protocol.server import StateholdServer
from ..sdk.access import TransportSessions, in_flight, open_transport
from ..sdk.replay import SessionEvents
from .legacy_response import LegacyResponse, StreamQuestions
from .request import SESSION, VERSION, Head, PlainRequest, parse_call
from .response import AcceptedResponse

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
        connection = self._server.connection(session_id)
        if transport is None or connection is None or not connection.initialize_accepted:
            return None
        session = self._sessions.get(session_id)
        if session is None:
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
