"""Prompts of the services of a session. Without a pinned session, a prompt takes the session as its first argument."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from ...sessions.errors import SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.services import Offering
from ...tools.catalog import session_argument_name
from ..gateway.freshness import ttl_ms
from ..gateway.tool_names import hold_names
from ..gateway.uris import address_messages_in_session
from ..sdk.access import RequestContext
from .error_translation import translate_errors
from .resources import Resources, refuse_cursor, result_of, unchanged

logger = logging.getLogger("statehold.server")


class Prompts:
    """The prompt handlers of one server. A name in several services is that of the first that had it.

    Names are held when every service was probed and at each change, whether a client has asked for them or not.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._gateway = resources.gateway
        self._hidden: set[tuple[str, str]] = set()
        self._holders: dict[str, str] = {}
        # Clients know the names from the earlier process.
        self._hold_names()
        self._gateway.probes.on_done.append(self._hold_names)
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
        for name, (service, prompt) in self._known().items():
            arguments = list(prompt.get("arguments") or [])
            if not is_pinned:
                arguments.insert(0, {"name": session_argument(prompt), "required": True})
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
            pin, key = resources.pin(ctx), session_argument(prompt)
            if pin is not None:
                session = await self._gateway.pinned_sessions.id_of(resources.principal(ctx), pin)
            else:
                session = arguments.pop(key, "")
            if not session:
                raise SessionNotFound(f"{key} is missing: call session_create first.")
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
        entry = self._known().get(name)
        while entry is None and await self._gateway.probes.wait_next():
            entry = self._known().get(name)
        if entry is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name:.128}")
        return entry

    def _hold_names(self) -> None:
        self._known()

    async def _hold_new_names(self) -> None:
        self._known()

    def _known(self) -> dict[str, tuple[str, JSON]]:
        """Return service and prompt by name, of the services that were probed by now."""
        gateway = self._gateway
        prompts: dict[str, tuple[str, JSON]] = {}
        for service in self._resources.services_with("prompts"):
            prefix = gateway.config.services[service].prefix
            for prompt in cast("Offering", gateway.services[service]).prompts:
                name = prefix + prompt["name"]
                if name not in prompts and self._holders.get(name, service) == service:
                    prompts[name] = service, prompt
                elif (service, name) not in self._hidden:
                    self._hidden.add((service, name))
                    logger.warning("prompt %s of %s is hidden by another", name, service)
        hold_names(self._holders, {name: entry[0] for name, entry in prompts.items()})
        return prompts


def session_argument(prompt: JSON) -> str:
    """Return the name of the argument that holds the session: one that the prompt does not use."""
    return session_argument_name({argument["name"] for argument in prompt.get("arguments") or ()})


__all__ = ["Prompts", "session_argument"]
