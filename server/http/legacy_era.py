"""The fast path of sessions of 2024-11-05 to 2025-11-25: requests that are certainly tool calls, or belong to a running one.

The SDK keeps the session: it opens it, ends it, and answers everything else in it. A call that runs here counts as a request
of the session: the session is not ended as idle meanwhile, and the call ends with the session.
"""

from __future__ import annotations

import itertools
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
from ..protocol.request_checks import refuse_unsound
from ..protocol.server import StateholdServer
from ..sdk.access import TransportSessions, in_flight, open_transport
from .fast_request import SESSION, VERSION, Head, PlainRequest, parse_call
from .legacy_response import LegacyResponse, Question
from .replay import SessionEvents
from .response import AcceptedResponse

_VERSIONS: Final = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)

RESUMABLE: Final = "2025-11-25"
"""The first version whose clients resume a stream."""
END_SECONDS: Final = 1.0
"""Seconds that the calls of an ending session may take to end; the SDK gives all cleanup of the session five."""


class LegacySession:
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
        self._id = session
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

    def in_flight(self) -> AbstractContextManager[None]:
        """Count a request of the session, so that it is not ended as idle meanwhile."""
        return in_flight(self.transport)

    def accept(
        self, request: PlainRequest, message: JSON
    ) -> LegacyResponse | AcceptedResponse | None:
        """Return the response to a message, None when the SDK has to answer it."""
        if self._ended or self.transport.is_terminated:
            return None
        if "method" not in message:
            return AcceptedResponse(self._id) if self._answered(message) else None
        if "id" not in message:
            return AcceptedResponse(self._id) if self._cancelled(message) else None
        call = parse_call(message)
        if call is None:
            return None
        response = LegacyResponse(
            request,
            call,
            self._connection,
            self,
            headers=((SESSION, self._id),),
            transport=self.transport,
            events=self._events,
        )
        self._calls.add(response)
        return response

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


class LegacyEra:
    """The sessions of one manager whose calls take the fast path."""

    def __init__(self, server: StateholdServer, manager: StreamableHTTPSessionManager) -> None:
        self._server = server
        self._manager = manager
        self._sessions: dict[str, LegacySession] = {}

    def session(self, head: Head, user: object) -> LegacySession | None:
        """Return the open session that a request of `user` may use, None when the SDK has to decide it."""
        given = head.get(SESSION)
        if given is None or head.get(VERSION, b"2025-03-26") not in _VERSIONS:
            return None
        name = given.decode("latin-1")
        transport = open_transport(self._manager, name, user)
        connection = self._server.connection(name)
        if transport is None or connection is None or not connection.initialize_accepted:
            return None
        session = self._sessions.get(name)
        if session is None:
            # Older clients do not understand the event without data that a stream begins with.
            resumes = is_version_at_least(connection.protocol_version, RESUMABLE)
            manager = self._manager
            events = (
                manager.events(name) if resumes and isinstance(manager, TransportSessions) else None
            )
            session = LegacySession(given, connection, transport, events)
            self._sessions[name] = session
            connection.exit_stack.push_async_callback(self._end, name)
        return session

    async def _end(self, name: str) -> None:
        await self._sessions.pop(name).end()


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


__all__ = ["LegacyEra", "LegacySession"]
