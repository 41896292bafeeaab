"""Completion of the arguments of prompts and resource templates, passed on to the service that has them."""

from __future__ import annotations

from typing import Any, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from ...sessions.json_codec import JSON
from ..sdk.access import RequestContext
from .resources import Resources, result_of, session_argument, translated


class Completion:
    """The handler of `completion/complete`. It keeps nothing between requests.

    A prompt is completed in the session of the arguments given so far, where no session is pinned.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def register(self, server: Server[Any]) -> None:
        method, params = "completion/complete", types.CompleteRequestParams
        server.add_request_handler(method, params, self._answer)

    async def _answer(self, ctx: RequestContext, params: types.CompleteRequestParams) -> Any:
        """Return the service's completion, an empty one where there is nothing to complete.

        Raises:
            MCPError: the prompt or the address is unknown, or the session refuses the request.
        """
        await self._resources.gateway.catalog("explicit")
        given = dict(ctx.params or {})
        with translated():
            if isinstance(params.ref, types.PromptReference):
                found = await self._prompt(ctx, params.ref.name, given)
            else:
                found = await self._template(ctx, str(params.ref.uri), given)
            if found is None or found[1] not in self._resources.offering("completions"):
                return result_of(ctx, {"completion": {"values": []}})
            session, service, wanted = found
            method = "completion/complete"
            answer, _ = await self._resources.forward(ctx, session, service, method, wanted)
            return result_of(ctx, answer)

    async def _prompt(
        self, ctx: RequestContext, name: str, given: JSON
    ) -> tuple[str, str, JSON] | None:
        """Return session, service and params; None without a session."""
        resources = self._resources
        known = resources.known_prompts().get(name)
        if known is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name:.128}")
        service, prompt = known
        arguments = _arguments(given)
        pin = resources.pin(ctx)
        if pin is None:
            session: object = arguments.pop(session_argument(prompt), None)
        else:
            session = await resources.gateway.pinned(resources.principal(ctx), pin)
        if not isinstance(session, str) or not session:
            return None
        ref = {**given["ref"], "name": prompt["name"]}
        return session, service, _wanted(given, ref, arguments)

    async def _template(
        self, ctx: RequestContext, address: str, given: JSON
    ) -> tuple[str, str, JSON]:
        session, service, uri = await self._resources.address(ctx, address)
        ref = {**given["ref"], "uri": uri}
        return session, service, _wanted(given, ref, _arguments(given))


def _arguments(given: JSON) -> JSON:
    context: object = given.get("context")
    found: object = cast("JSON", context).get("arguments") if isinstance(context, dict) else None
    return dict(cast("JSON", found)) if isinstance(found, dict) else {}


def _wanted(given: JSON, ref: JSON, arguments: JSON) -> JSON:
    wanted: JSON = {"ref": ref, "argument": given["argument"]}
    return {**wanted, "context": {"arguments": arguments}} if arguments else wanted


__all__ = ["Completion"]
