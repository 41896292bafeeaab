"""The actions on a session: each calls the tool that an agent or a command would call. Operators close any session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from ..server.gateway.gateway import Gateway
from ..server.sockets.request import Refused
from ..sessions.errors import SessionError, SessionNotFound
from ..sessions.json_codec import JSON
from ..sessions.records import Principal, SessionFilter, SessionOrder, SessionRecord
from .owner_calls import OwnerCalls
from .requests import (
    ApiModel,
    CancelCallBody,
    CloseBody,
    ExportBody,
    ExtendBody,
    ForkBody,
    GiveBackBody,
    NoBody,
    OperatorListQuery,
    RenameBody,
    RenewBody,
    RestartBody,
    parse_statuses,
    tool_arguments,
)
from .routes import (
    SESSION,
    USE,
    ApiCall,
    ApiError,
    ApiRoute,
    json_response,
    not_allowed,
    route,
    serve,
)
from .session_documents import ConsoleSessions

_OF_A_PERSON: Final = ("take", "renew", "give-back")
"""The actions on control, which belongs to one login."""

MEMBERS: Final = (
    *("session_id", "status", "created_at", "used_at", "closed_at", "since", "ends_at"),
    *("services", "open_in"),
)
"""The members of a session that are no content. Its name, purpose, labels and metadata are some."""


@dataclass(frozen=True, slots=True)
class SessionAction:
    """An action on a session, and the tool that runs it."""

    name: str
    tool: str
    summary: str
    body: type[ApiModel] = NoBody
    for_guests: bool = False
    """Whether a link with the right to control, and a share with the right to use, include it."""

    @property
    def route(self) -> ApiRoute:
        return ApiRoute(
            "POST",
            f"{SESSION}/actions/{self.name}",
            self.summary,
            "guest" if self.for_guests else "member",
            "control",
            name=f"act_{self.name.replace('-', '_')}",
            shared=USE if self.for_guests else None,
            body=self.body,
        )


ACTIONS: Final = (
    SessionAction("pause", "session_pause", "Save a session and free what it takes"),
    SessionAction("resume", "session_resume", "Resume a paused session"),
    SessionAction("restart", "session_restart", "Replace its connections", RestartBody),
    SessionAction("close", "session_close", "Close a session for good", CloseBody),
    SessionAction("extend", "session_extend", "Let a session live longer", ExtendBody),
    SessionAction("rename", "session_rename", "Change its name or metadata", RenameBody),
    SessionAction("fork", "session_fork", "Make children of a session", ForkBody),
    SessionAction("export", "session_export", "Get all that is kept of it", ExportBody),
    SessionAction(
        "cancel-call",
        "call_cancel",
        "Cancel a call that goes on without its caller",
        CancelCallBody,
        for_guests=True,
    ),
    SessionAction(
        "take", "operator_take_control", "Take control of it from its agent", for_guests=True
    ),
    SessionAction(
        "renew",
        "operator_renew_control",
        "Keep control for another minute",
        RenewBody,
        for_guests=True,
    ),
    SessionAction(
        "give-back",
        "operator_give_back",
        "Hand it back to its agent",
        GiveBackBody,
        for_guests=True,
    ),
)
_BY_ROUTE: Final = {action.route.name: action for action in ACTIONS}


class SessionActions:
    """The handler of all actions. The node that owns a session runs them."""

    def __init__(self, sessions: ConsoleSessions, calls: OwnerCalls) -> None:
        self._sessions = sessions
        self._calls = calls

    @serve(action.route for action in ACTIONS)
    async def act(self, call: ApiCall, body: ApiModel) -> Response:
        action = _BY_ROUTE[call.route.name]
        record = await self._sessions.find_for(call)
        arguments = tool_arguments(body)
        if action.name in _OF_A_PERSON:
            arguments |= {"user": call.user.key, "login": call.require_login().id}
        if action.name == "take":
            arguments["holder"] = call.user.name
        elif action.name == "give-back":
            arguments["by_operator"] = call.user.is_machine_user
        if arguments.get("secrets") and not call.user.is_machine_user:
            raise not_allowed("Only the user of the machine may export what is secret.")
        return json_response(await self._calls.call(record, action.tool, **arguments))


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
