"""Shares of sessions with people and groups, and the sessions that others share with a person."""

from __future__ import annotations

from starlette.responses import Response

from ...server.gateway.gateway import Gateway
from ...sessions.json_codec import JSON
from ...sessions.records import ShareRecord
from ...sessions.views import describe_share
from ..calls import ApiCall
from ..errors import json_response, not_found
from ..owner_calls import OwnerCalls
from ..requests import ShareBody, tool_arguments
from ..routes import SESSION, route
from ..session_documents import ConsoleSessions


class ShareHandlers:
    """The handlers of shares. They call the tools that an agent calls; the store has the shares."""

    def __init__(self, gateway: Gateway, sessions: ConsoleSessions, calls: OwnerCalls) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._calls = calls

    @route("GET", f"{SESSION}/shares", "List its shares with people and groups")
    async def shares(self, call: ApiCall) -> Response:
        record = await self._sessions.find_for(call)
        shares = await self._shares(record.id)
        return json_response({"shares": [_describe(share) for share in shares]})

    @route("POST", f"{SESSION}/shares", "Share it with a person or a group", rights="control")
    async def create_share(self, call: ApiCall, body: ShareBody) -> Response:
        record = await self._sessions.find_for(call)
        arguments = tool_arguments(body)
        return json_response(await self._calls.call(record, "session_share", **arguments))

    @route("DELETE", f"{SESSION}/shares/{{share_id}}", "End a share", rights="control")
    async def revoke_share(self, call: ApiCall) -> Response:
        record = await self._sessions.find_for(call)
        share_id = call.parameter("share_id")
        if not await self._gateway.store.access.delete_share(record.id, share_id):
            raise not_found()
        return json_response({})

    async def _shares(self, session_id: str) -> list[ShareRecord]:
        now = self._gateway.registry.core.clock.now()
        return await self._gateway.store.access.shares(session_id, now)

    @route("GET", "/shared", "List the sessions that others share with you")
    async def shared(self, call: ApiCall) -> Response:
        return json_response({"sessions": await self._sessions.shared(call.user)})


def _describe(share: ShareRecord) -> JSON:
    return {"id": share.grantee.digest, **describe_share(share)}
