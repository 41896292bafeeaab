"""Completion of the arguments of prompts and resource templates, answered by their service."""

from __future__ import annotations

from typing import Any, cast

import mcp_types as types
from mcp.server.lowlevel import Server

from ...sessions.json_codec import JSON
from ..sdk.access import RequestContext
from .error_translation import translate_errors
from .prompts import Prompts
from .resources import Resources, result_of


class Completion:
    """The handler of `completion/complete`. It keeps nothing between requests.

    Without a pinned session, a prompt is completed in the session that its arguments name so far.
    """

    def __init__(self, resources: Resources, prompts: Prompts) -> None:
        self._resources = resources
        self._prompts = prompts

    def register(self, server: Server[Any]) -> None:
        method, params = "completion/complete", types.CompleteRequestParams
        server.add_request_handler(method, params, self._complete)

    async def _complete(self, ctx: RequestContext, params: types.CompleteRequestParams) -> Any:
        """Return the completion of the service; it is empty without a session, or if the service completes nothing.

        Raises:
            MCPError: the prompt or the address is unknown, or the session refuses the request.
        """
        raw_params = dict(ctx.params or {})
        with translate_errors():
            if isinstance(params.ref, types.PromptReference):
                target = await self._find_prompt(ctx, params.ref.name, raw_params)
            else:
                target = await self._find_template(ctx, str(params.ref.uri), raw_params)
            if target is None or not await self._completes(target[1]):
                return result_of(ctx, {"completion": {"values": []}})
            session, service, service_params = target
            method = "completion/complete"
            result, _ = await self._resources.request_service(
                ctx, session, service, method, service_params
            )
            return result_of(ctx, result)

    async def _completes(self, service: str) -> bool:
        """Whether a service completes arguments, waiting until it was probed."""
        probes = self._resources.gateway.probes
        while service not in self._resources.services_with("completions"):
            if not await probes.wait_next():
                return False
        return True

    async def _find_prompt(
        self, ctx: RequestContext, name: str, raw_params: JSON
    ) -> tuple[str, str, JSON] | None:
        """Return session, service and the parameters for it; None if the arguments name no session."""
        resources = self._resources
        service, prompt = await self._prompts.find(name)
        arguments = _arguments(raw_params)
        pin = resources.pin(ctx)
        if pin is None:
            session: object = self._prompts.take_session(service, prompt, arguments)
        else:
            session = await resources.gateway.pinned_sessions.id_of(resources.principal(ctx), pin)
        if not isinstance(session, str) or not session:
            return None
        ref = {**raw_params["ref"], "name": prompt["name"]}
        return session, service, _service_params(raw_params, ref, arguments)

    async def _find_template(
        self, ctx: RequestContext, address: str, raw_params: JSON
    ) -> tuple[str, str, JSON]:
        session, service, uri = await self._resources.resolve_address(ctx, address)
        ref = {**raw_params["ref"], "uri": uri}
        return session, service, _service_params(raw_params, ref, _arguments(raw_params))


def _arguments(raw_params: JSON) -> JSON:
    context: object = raw_params.get("context")
    arguments: object = (
        cast("JSON", context).get("arguments") if isinstance(context, dict) else None
    )
    return dict(cast("JSON", arguments)) if isinstance(arguments, dict) else {}


def _service_params(raw_params: JSON, ref: JSON, arguments: JSON) -> JSON:
    params: JSON = {"ref": ref, "argument": raw_params["argument"]}
    return {**params, "context": {"arguments": arguments}} if arguments else params
