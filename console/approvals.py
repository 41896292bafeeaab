"""The approvals of calls at the console: a person sees the arguments as they will be sent, and decides."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio.to_thread
from pydantic import Field
from starlette.responses import Response

from ..server.gateway.gateway import Gateway
from ..sessions.calls.approval import Decision, decide, describe_approval, show_arguments
from ..sessions.store.base import ApprovalRecord
from .requests import ApiModel
from .routes import ApiCall, ApiError, json_response, not_found, route


class DecisionBody(ApiModel):
    decision: Annotated[
        Decision, Field(description="For this call, or for all calls of its tool in the session")
    ]


class ApprovalHandlers:
    """The handlers of the approvals of one process. They keep nothing."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @route("GET", "/approvals", "List your calls that wait for a person, and what holds for longer")
    async def approvals(self, call: ApiCall) -> Response:
        gateway, now = self._gateway, self._gateway.registry.core.clock.now()
        found = await gateway.store.access.open_approvals(call.user.owner, now)
        return json_response({"approvals": [*map(describe_approval, found)]})

    @route("GET", "/approvals/{approval_id}", "Show one of them, and its arguments while it waits")
    async def approval(self, call: ApiCall) -> Response:
        found, arguments = await self._find(call), None
        if found.arguments:
            # They may be long.
            arguments = await anyio.to_thread.run_sync(show_arguments, found.arguments)
        return json_response({**describe_approval(found), "arguments": arguments})

    async def _find(self, call: ApiCall) -> ApprovalRecord:
        found = await self._gateway.store.access.approval(call.parameter("approval_id"))
        if found is None or call.user.owner not in (None, found.owner):
            raise not_found()
        return found

    @route(
        "POST",
        "/approvals/{approval_id}",
        "Approve or refuse a call, or end what holds for longer",
        rights="control",
    )
    async def decide_approval(self, call: ApiCall, body: DecisionBody) -> Response:
        gateway, user, found = self._gateway, call.user, await self._find(call)
        now = gateway.registry.core.clock.now()
        admit = partial(gateway.audit.admit, user.actor(call.address))
        is_done = await decide(gateway.store, admit, found, body.decision, now)
        if not is_done:
            raise ApiError("decided", "The call does not wait any more.", "Look at the list again.")
        return json_response({})
