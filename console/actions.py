"""The actions on a session: each calls the tool that an agent or a command would call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from .calls import ApiCall
from .errors import json_response, not_allowed
from .owner_calls import OwnerCalls
from .requests import (
    ApiModel,
    CloseBody,
    ExportBody,
    ExtendBody,
    ForkBody,
    GiveBackBody,
    NoBody,
    RenameBody,
    RenewBody,
    RestartBody,
    tool_arguments,
)
from .routes import SESSION, USE, ApiRoute, serve
from .session_documents import ConsoleSessions

_OF_A_PERSON: Final = ("take", "renew", "give-back")
"""The actions on control, which belongs to one login."""


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
