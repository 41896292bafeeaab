"""Prompts of the services of a session, and the completion of their arguments and of those of resource templates.

Without a pinned session, a prompt takes the session as its first argument.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from ...sessions.errors import SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.services import Offering
from ...tools.catalog import SESSION_ARGUMENT, session_argument_name
from ...tools.tool_names import describe_renames_by_service
from ..gateway.gateway import ttl_ms
from ..gateway.names import NamedPrompts, log_renames, name_prompts
from ..gateway.uris import address_messages_in_session
from ..sdk.access import RequestContext
from .error_translation import translate_errors
from .resources import Resources, refuse_cursor, result_of, unchanged


class Prompts:
    """The prompt handlers of one server. Names that several services have are given as those of tools; see HeldNames."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._gateway = resources.gateway
        self._gateway.probes.on_done.append(self._hold_when_done)
        self._gateway.probes.on_prompts_changed.append(self._hold_new_names)

    def register(self, server: Server[Any]) -> None:
        page = types.PaginatedRequestParams
        server.add_request_handler("prompts/list", page, self._list)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, self._get)

    async def _list(self, ctx: RequestContext, params: types.PaginatedRequestParams | None) -> Any:
        refuse_cursor(params)
        await self._gateway.probes.wait_for_lists()
        is_pinned = self._resources.pin(ctx) is not None
        prompts: list[JSON] = []
        for name, (service, prompt) in self._hold_names().items():
            arguments = list(prompt.get("arguments") or [])
            if not is_pinned:
                argument = {"name": self.session_argument(service), "required": True}
                arguments.insert(0, argument)
            description = prompt.get("description") or f"A prompt of {service}."
            prompts.append(
                {**prompt, "name": name, "description": description, "arguments": arguments}
            )
        return result_of(ctx, {"prompts": prompts, "ttlMs": ttl_ms(self._gateway)})

    async def _get(self, ctx: RequestContext, params: types.GetPromptRequestParams) -> Any:
        resources = self._resources
        with translate_errors():
            service, prompt = await self.find(params.name)
            arguments = dict(params.arguments or {})
            pin = resources.pin(ctx)
            if pin is not None:
                session = await self._gateway.pinned_sessions.id_of(resources.principal(ctx), pin)
            else:
                session = self.take_session(service, prompt, arguments)
            if not session:
                argument = self.session_argument(service)
                raise SessionNotFound(f"{argument} is missing: call session_create first.")
            request_params: JSON = {"name": prompt["name"], "arguments": arguments}
            finish = unchanged
            if resources.own_service(ctx) is None:
                finish = partial(address_messages_in_session, service=service)
            return await resources.request_interactively(
                ctx, session, service, "prompts/get", request_params, finish
            )

    async def find(self, name: str) -> tuple[str, JSON]:
        """Return service and prompt of a name, waiting until a service has it or all services were probed.

        Raises:
            MCPError: no service has it.
            ServiceUnavailable: the gateway is left meanwhile.
        """
        await self._gateway.probes.wait_for_lists()
        entry = self._hold_names().get(name)
        while entry is None and await self._gateway.probes.wait_next():
            entry = self._hold_names().get(name)
        if entry is None and self._gateway.probes.ask_again is not None:
            await self._gateway.probes.ask_again("prompts")
            entry = self._hold_names().get(name)
        if entry is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name:.128}")
        return entry

    def session_argument(self, service: str) -> str:
        """Return the name of the argument that holds the session, in all prompts of a service.

        It is that of the tools of the service unless a prompt uses that name.
        """
        prompts = cast("Offering", self._gateway.services[service]).prompts
        used_names = {
            argument["name"] for prompt in prompts for argument in prompt.get("arguments") or ()
        }
        name = self._gateway.tools.session_argument(service)
        return name if name not in used_names else session_argument_name({*used_names, name})

    def take_session(self, service: str, prompt: JSON, arguments: JSON) -> Any:
        """Return the session that the arguments for a prompt name, None for none, and remove it from them."""
        argument = self.session_argument(service)
        own_names = {each["name"] for each in prompt.get("arguments") or ()}
        if argument not in arguments and SESSION_ARGUMENT not in own_names:
            # The client has a list from before a tool of the service got an argument of this name.
            argument = SESSION_ARGUMENT
        return arguments.pop(argument, None)

    def _hold_when_done(self) -> None:
        if self._gateway.probes.are_names_known:
            self._hold_names()

    async def _hold_new_names(self) -> None:
        self._hold_names()

    def _hold_names(self) -> NamedPrompts:
        """Return service and prompt by name, of the services that were probed by now. Clients know the names from now on."""
        gateway = self._gateway
        services = {
            name: gateway.config.services[name] for name in self._resources.services_with("prompts")
        }
        prompts = {name: cast("Offering", gateway.services[name]).prompts for name in services}
        named, renames = name_prompts(services, prompts, gateway.names.prompts)
        gateway.names.hold("prompt", {name: service for name, (service, _) in named.items()})
        lines = describe_renames_by_service(renames)
        log_renames(lines, gateway.prompt_renames)
        gateway.prompt_renames = lines
        return named


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
