"""The sessions of all owners for operators: looked at and closed without their content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from ...server.gateway.gateway import Gateway
from ...server.sockets.request import Refused
from ...sessions.errors import SessionError, SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.records import Principal, SessionFilter, SessionOrder, SessionRecord
from ..calls import ApiCall
from ..errors import ApiError, json_response
from ..owner_calls import OwnerCalls
from ..requests import CloseBody, OperatorListQuery, parse_statuses, tool_arguments
from ..routes import route
from ..session_documents import ConsoleSessions

MEMBERS: Final = (
    *("session_id", "status", "created_at", "used_at", "closed_at", "since", "ends_at"),
    *("services", "open_in"),
)
"""The members of a session that are no content. Its name, purpose, labels and metadata are some."""


class OperatorSessions:
    """The handlers of operators. No other handler finds a session for somebody who does not own it."""

    def __init__(self, gateway: Gateway, sessions: ConsoleSessions, calls: OwnerCalls) -> None:
        self._store = gateway.store
        self._sessions = sessions
        self._calls = calls

    @route("GET", "/operator/sessions", "List the sessions of all owners", role="operator")
    async def operator_sessions(self, call: ApiCall, query: OperatorListQuery) -> Response:
        session_filter = SessionFilter(
            statuses=sorted(parse_statuses(query.status)),
            order=SessionOrder(query.sort.removeprefix("-")),
            reverse=query.sort.startswith("-"),
            limit=query.limit,
            cursor=query.cursor,
        )
        records, cursor = await self._store.list_sessions(session_filter)
        return json_response({"sessions": await self._describe(records), "next_cursor": cursor})

    @route(
        "GET",
        "/operator/sessions/{session_id}",
        "Show a session of any owner without its content",
        role="operator",
    )
    async def operator_session(self, call: ApiCall) -> Response:
        record = await self._find(call.session_id)
        return json_response((await self._describe([record]))[0])

    @route(
        "POST",
        "/operator/sessions/{session_id}/close",
        "Close a session of any owner",
        rights="control",
        role="operator",
    )
    async def operator_close(self, call: ApiCall, body: CloseBody) -> Response:
        record = await self._find(call.session_id)
        arguments = tool_arguments(body)
        try:
            closed = await self._calls.call(record, "session_close", cause="operator", **arguments)
        except (SessionError, Refused) as error:
            # Its text may quote what the agent or a person said.
            message = "The session cannot be closed now, or not without force."
            raise ApiError(error.code, message, "Close it with force.") from None
        return json_response({key: closed[key] for key in ("session_id", "status")})

    async def _find(self, session_id: str) -> SessionRecord:
        record = await self._store.get(session_id)
        if record is None:
            raise SessionNotFound
        return record

    async def _describe(self, records: Sequence[SessionRecord]) -> list[JSON]:
        sizes = await self._store.sizes([record.id for record in records])
        documents = await self._sessions.documents.describe_all(records)
        found: list[JSON] = []
        for record, document in zip(records, documents, strict=True):
            owner = Principal.of_key(record.owner)
            found.append(
                {
                    **{name: document[name] for name in MEMBERS},
                    "owner": {"subject": owner.subject, "issuer": owner.issuer},
                    "driver": record.control.driver.value,
                    "stored_bytes": sizes.get(record.id, 0),
                }
            )
        return found
