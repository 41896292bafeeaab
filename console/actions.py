"""The actions on a session: each calls the tool that an agent or a command would call."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.responses import Response

from .calls import ApiCall, Handler
from .errors import json_response, not_allowed
from .owner_calls import OwnerCalls
from .requests import tool_arguments
from .routes import ACTIONS, SessionAction
from .session_documents import ConsoleSessions

_OF_A_PERSON: Final = ("take", "renew", "give-back")
"""The actions on control, which belongs to one login."""


class SessionActions:
    """The handlers of all actions. The node that owns a session runs them."""

    def __init__(self, sessions: ConsoleSessions, calls: OwnerCalls) -> None:
        self._sessions = sessions
        self._calls = calls

    def handlers(self) -> dict[str, Handler]:
        return {action.route.name: partial(self._act, action) for action in ACTIONS}

    async def _act(self, action: SessionAction, call: ApiCall) -> Response:
        record = await self._sessions.find_for(call)
        arguments = tool_arguments(call.body)
        if action.name in _OF_A_PERSON:
            arguments |= {"user": call.user.key, "login": call.require_login().id}
        if action.name == "take":
            arguments["holder"] = call.user.name
        elif action.name == "give-back":
            arguments["by_operator"] = call.user.is_machine_user
        if arguments.get("secrets") and not call.user.is_machine_user:
            raise not_allowed("Only the user of the machine may export what is secret.")
        return json_response(await self._calls.call(record, action.tool, **arguments))
