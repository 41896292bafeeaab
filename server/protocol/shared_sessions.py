"""Requests for sessions that are shared with their caller. They run as requests of the owner of the session.

A request is first answered for its caller. If that caller has no such session, one query finds a share that allows the
request; it is the same query for an unknown session and for one of another principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ...sessions.errors import SessionNotFound
from ...sessions.ids import ID_PREFIX
from ...sessions.json_codec import JSON
from ...sessions.records import Principal, ShareRights
from ...tools.own.own_tool import grantees_of
from ..gateway.gateway import Gateway
from ..gateway.uris import parse_session_uri, parse_state_uri
from ..sdk.access import RequestContext
from ..sdk.caller import OWNER_SCOPE, is_forwarded
from .request_checks import (
    OwnCall,
    Requester,
    ServiceCall,
    named_session,
    parked_call_state,
)

TOOL_RIGHTS: Final[Mapping[str, ShareRights | None]] = {
    "session_create": None,
    "session_list": None,
    "session_info": ShareRights.VIEW,
    "session_close": None,
    "session_pause": None,
    "session_resume": ShareRights.USE,
    "session_extend": None,
    "session_restart": None,
    "session_rename": None,
    "session_bind": None,
    "session_unbind": None,
    "session_request_human": ShareRights.USE,
    "session_share": None,
    "session_unshare": None,
    "session_view": ShareRights.VIEW,
    "state_get": ShareRights.VIEW,
    "state_update": ShareRights.USE,
    "session_history": ShareRights.VIEW,
    "session_note": ShareRights.USE,
    "session_run": ShareRights.USE,
    "session_summary": ShareRights.USE,
    "session_fork": None,
    "session_merge": None,
    "session_delete": None,
    "session_export": None,
    "session_import": None,
    "service_list": None,
    "server_stats": None,
    "call_result": ShareRights.VIEW,
    "call_list": None,
    "call_cancel": ShareRights.USE,
}
"""The right that each of our own tools needs; None: no share allows it. A tool of a service needs USE."""


TASK_RIGHTS: Final[Mapping[str, ShareRights]] = {
    "tasks/get": ShareRights.VIEW,
    "tasks/update": ShareRights.USE,
    "tasks/cancel": ShareRights.USE,
}
"""The right that each method for tasks needs."""


class SharedSessions:
    """The shared sessions of one server."""

    def __init__(self, gateway: Gateway, requester: Requester) -> None:
        self._gateway = gateway
        self._requester = requester

    async def allows_call(
        self, ctx: RequestContext, call: OwnCall | ServiceCall, error: Exception
    ) -> bool:
        """Whether a share allows a call that failed with an error; if so, its next answer is that for the owner."""
        if not isinstance(error, SessionNotFound) and parked_call_state(ctx.params or {}) is None:
            return False
        rights = ShareRights.USE if isinstance(call, ServiceCall) else _rights_of(call)
        return await self._allows(ctx, call.session, rights)

    async def allows_read(self, ctx: RequestContext, error: MCPError) -> bool:
        """The same for a request that is no tool call. Shares allow resources and tasks to be read."""
        data: object = error.error.data
        code = cast("JSON", data).get("code") if isinstance(data, dict) else None
        params: Mapping[str, Any] = ctx.params or {}
        if ctx.method in TASK_RIGHTS and error.error.code == INVALID_PARAMS:
            session = named_session(params)
            is_text = isinstance(session, str)
            return await self._allows(ctx, session if is_text else None, TASK_RIGHTS[ctx.method])
        if ctx.method != "resources/read" or (
            code != SessionNotFound.code and parked_call_state(params) is None
        ):
            return False
        uri = str(params.get("uri"))
        address = parse_session_uri(uri)
        session = parse_state_uri(uri) or (None if address is None else address[0])
        return await self._allows(ctx, session, ShareRights.VIEW)

    async def _allows(
        self, ctx: RequestContext, session: str | None, rights: ShareRights | None
    ) -> bool:
        if (
            rights is None
            or session is None
            # A name is one of the caller's own sessions.
            or not session.startswith(ID_PREFIX)
            or not self._gateway.config.needs_token
            or ctx.request is None
            or is_forwarded(ctx)
            or self._requester.is_shared(ctx)
            or self._requester.pin(ctx) is not None
        ):
            return False
        grantees = grantees_of(self._requester.principal(ctx), self._requester.groups())
        owner: Principal | None = await self._gateway.registry.sharing.owner(
            session, grantees, rights
        )
        if owner is None:
            return False
        ctx.request.scope[OWNER_SCOPE] = owner
        return True


def _rights_of(call: OwnCall) -> ShareRights | None:
    if call.tool.name == "session_summary" and not call.arguments.keys() - {"session_id"}:
        return ShareRights.VIEW
    return TOOL_RIGHTS.get(call.tool.name)
