"""The fast path of sessions of 2024-11-05 to 2025-11-25: requests that are certainly tool calls, or belong to a running one.

The SDK keeps the session: it opens it, ends it, and answers everything else in it. A call that runs here counts as a request
of the session: the session is not ended as idle meanwhile, and the call ends with the session.
"""

from __future__ import annotations

import itertools
from typing import Any, Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp_types import INVALID_PARAMS, ErrorData
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, is_version_at_least
from starlette.types import Receive, Scope, Send

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ..protocol.request_checks import refuse_unsound
from ..protocol.server import StateholdServer
from ..sdk.access import RequestContext, TransportSessions, open_transport
from .fast_request import SESSION, VERSION, Head, call_of, context_of, message_of, token_of, traced
from .legacy_response import LegacyResponse, Question
from .replay import SessionEvents

_VERSIONS: Final = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)

RESUMABLE: Final = "2025-11-25"
"""The first version whose clients resume a stream."""
END_SECONDS: Final = 1.0
"""Seconds that the calls of an ending session may take to end; the SDK gives all cleanup of the session five."""


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


class LegacyCalls:
    """The open calls of the fast path in one session, and by their ids the questions that they ask the client.

    It lives from the session's first call to the end of its connection, which ends the calls.
    """

    def __init__(
        self,
        session: bytes,
        connection: Connection,
        transport: StreamableHTTPServerTransport,
        events: SessionEvents | None = None,
    ) -> None:
        self._session = session
        self._events = events
        self._connection = connection
        self._ended = False
        self._finished: anyio.Event | None = None
        self._numbers = itertools.count(1)
        self._calls: set[LegacyResponse] = set()
        self._questions: dict[str, Question] = {}
        self.transport = transport

    async def end(self) -> None:
        """End the calls and wait until they have ended, so that later cleanup of the connection finds none."""
        self._ended = True
        for call in list(self._calls):
            call.close()
        with anyio.move_on_after(END_SECONDS):
            while self._calls:
                self._finished = anyio.Event()
                await self._finished.wait()

    # For the calls.

    def finish(self, call: LegacyResponse) -> None:
        self._calls.discard(call)
        if self._finished is not None:
            self._finished.set()

    def ask(self) -> Question:
        # A client cannot confuse it with an id of the SDK, which are integers.
        question = Question(f"statehold-{next(self._numbers)}")
        self._questions[question.id] = question
        return question

    def forget(self, question: Question) -> None:
        self._questions.pop(question.id, None)

    # Messages of the client.

    def take(
        self, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> tuple[LegacyResponse, RequestContext] | AcceptedResponse | None:
        """Return the response to a message, with its context for a call; None when the SDK has to answer it."""
        message = None if self._ended or self.transport.is_terminated else message_of(body)
        if message is None:
            return None
        if "method" not in message:
            return AcceptedResponse(self._session) if self._answered(message) else None
        if "id" not in message:
            return AcceptedResponse(self._session) if self._cancelled(message) else None
        return self._call(message, scope, receive, send)

    def _call(
        self, message: JSON, scope: Scope, receive: Receive, send: Send
    ) -> tuple[LegacyResponse, RequestContext] | None:
        found = call_of(message)
        if found is None:
            return None
        number, params = found
        meta: object = params.get("_meta", {})
        if not isinstance(meta, dict) or traced(cast("JSON", meta)):
            return None
        exchange = LegacyResponse(
            receive,
            send,
            self,
            session=self._session,
            request_id=number,
            progress_token=token_of(cast("JSON", meta)),
            began=anyio.current_time(),
            transport=self.transport,
            events=self._events,
        )
        self._calls.add(exchange)
        return exchange, context_of(exchange, self._connection, params, scope)

    def _answered(self, message: JSON) -> bool:
        """Pass an answer to its question; return whether there is one."""
        number: object = message.get("id")
        question = self._questions.get(number) if isinstance(number, str) else None
        outcome = _outcome(message)
        if question is None or outcome is None:
            return False
        question.settle(outcome)
        return True

    def _cancelled(self, message: JSON) -> bool:
        """Cancel the call that a notification names; return whether there is one here."""
        params: object = message.get("params")
        if message["method"] != "notifications/cancelled" or not isinstance(params, dict):
            return False
        number = as_request_id(cast("JSON", params).get("requestId"))
        if number is None:
            return False
        wanted = coerce_request_id(number)
        found = [call for call in self._calls if coerce_request_id(call.request_id) == wanted]
        for call in found:
            call.cancel()
        return bool(found)


class LegacyFastPath:
    """The calls of the sessions of one manager that take the fast path."""

    def __init__(self, face: StateholdServer, manager: StreamableHTTPSessionManager) -> None:
        self._face = face
        self._manager = manager
        self._talks: dict[str, LegacyCalls] = {}

    def talk(self, head: Head, scope: Scope) -> LegacyCalls | None:
        """Return the open session that a request may use, None when the SDK has to decide it."""
        session = head.get(SESSION)
        if session is None or head.get(VERSION, b"2025-03-26") not in _VERSIONS:
            return None
        known = session.decode("latin-1")
        transport = open_transport(self._manager, known, scope.get("user"))
        connection = self._face.connection(known)
        if transport is None or connection is None or not connection.initialize_accepted:
            return None
        found = self._talks.get(known)
        if found is None:
            # Older clients do not understand the event without data that a stream begins with.
            resumes = is_version_at_least(connection.protocol_version, RESUMABLE)
            manager = self._manager
            events = (
                manager.events(known)
                if resumes and isinstance(manager, TransportSessions)
                else None
            )
            found = self._talks[known] = LegacyCalls(session, connection, transport, events)
            connection.exit_stack.push_async_callback(self._end, known)
        return found

    async def _end(self, session: str) -> None:
        await self._talks.pop(session).end()


def _outcome(message: JSON) -> JSON | ErrorData | None:
    """Return the result or error of a well-formed answer, else None."""
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict) and "error" not in message:
        try:
            refuse_unsound(cast("JSON", result))
        except InvalidArgument as refused:
            return ErrorData(code=INVALID_PARAMS, message=refused.message)
        return cast("JSON", result)
    if not isinstance(error, dict) or "result" in message:
        return None
    return _error(cast("JSON", error))


def _error(error: JSON) -> ErrorData | None:
    code: Any = error.get("code")
    text: Any = error.get("message")
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(text, str):
        return None
    return ErrorData(code=code, message=text, data=error.get("data"))


__all__ = ["AcceptedResponse", "LegacyFastPath", "LegacyCalls"]
