"""Extensions of services (SEP-2133): what we declare because of them, and the requests that are passed on.

A pinned address with one service stands for its server, so that all its extensions and their methods work there. Elsewhere
several servers are one, and only extensions whose meaning is known can be united: MCP Apps (`ui`) and skills.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import HandlerEntry
from mcp.shared.exceptions import MCPError
from mcp_types.methods import SPEC_CLIENT_METHODS

from ...sessions.json_codec import JSON
from ...tools.upstream.negotiation import EVENTS, TASKS
from ...tools.upstream.probe import Profile
from ...tools.upstream.service import UpstreamService
from ..gateway.gateway import Gateway
from ..gateway.skills import SKILLS, Skills
from ..sdk.access import RequestContext
from .error_translation import translate_errors
from .resources import Resources, refuse_cursor, result_of, unchanged
from .results import mark_request_state

Entry: TypeAlias = HandlerEntry[dict[str, Any]]
UI: Final = "io.modelcontextprotocol/ui"

_SPECIFIED: Final = frozenset(types.ServerCapabilities.model_fields)
"""The capabilities of the specification, of any version. Any other one is an extension without a name of its own."""
_UNRELAYED_METHODS: Final = SPEC_CLIENT_METHODS | {"events/subscribe", "events/unsubscribe"}
"""A webhook is that of one caller (SEP-3415), and the server would take all our callers for one."""
_UNRELAYED_PREFIXES: Final = ("tasks/", "notifications/")
_PROTOCOL_MEMBERS: Final = frozenset({"_meta", "inputResponses", "requestState"})


def declared_capabilities(gateway: Gateway, own_service: str | None) -> JSON:
    """Return the capabilities that are declared because of extensions.

    `own_service` is the service for whose server the address stands, if there is one. Where several services declare `ui`,
    their MIME types are united, and any other setting is the first one's.
    """
    if own_service is not None:
        profile = _profile_of(gateway, own_service)
        unnamed = {} if profile is None else _unnamed(profile)
        return {**unnamed, "extensions": {} if profile is None else _relayed(profile)}
    # Of the settings of skills, directories are not passed on.
    extensions: JSON = {SKILLS: {}}
    for name in gateway.services:
        profile = _profile_of(gateway, name)
        settings = None if profile is None else profile.extensions.get(UI)
        if settings is not None:
            extensions[UI] = _unite(extensions.get(UI, {}), settings)
    return {"extensions": extensions}


def _profile_of(gateway: Gateway, service: str) -> Profile | None:
    upstream = gateway.services[service]
    return upstream.profile if isinstance(upstream, UpstreamService) else None


def _relayed(profile: Profile) -> JSON:
    return {
        name: settings
        for name, settings in profile.extensions.items()
        if name != TASKS and not (name == EVENTS and "webhook" in str(settings))
    }


def _unnamed(profile: Profile) -> JSON:
    capabilities = profile.peer.capabilities
    return {key: capabilities[key] for key in capabilities.keys() - _SPECIFIED}


def _unite(first: JSON, other: JSON) -> JSON:
    settings, own, more = {**other, **first}, first.get("mimeTypes"), other.get("mimeTypes")
    if isinstance(own, list) and isinstance(more, list):
        items = cast("list[object]", own)
        added = (item for item in cast("list[object]", more) if item not in items)
        settings["mimeTypes"] = [*items, *added]
    return settings


class Extensions:
    """The handlers of methods that the specification does not have. It keeps nothing between requests."""

    def __init__(self, gateway: Gateway, resources: Resources, skills: Skills) -> None:
        self._gateway = gateway
        self._resources = resources
        self._skills = skills
        self._relay_entry: Entry = HandlerEntry(types.RequestParams, self._relay)

    def register(self, server: Server[Any]) -> None:
        for method in ("skills/list", "skills/get"):
            server.add_request_handler(method, types.PaginatedRequestParams, self._answer_skills)

    def handler_of(self, method: str) -> Entry | None:
        """Return the handler of a method without one of its own; None if it is never passed on."""
        if method in _UNRELAYED_METHODS or method.startswith(_UNRELAYED_PREFIXES):
            return None
        return self._relay_entry if len(self._gateway.services) == 1 else None

    async def _relay(self, ctx: RequestContext, params: types.RequestParams) -> JSON:
        """Pass a request on to the server for which the address stands.

        Raises:
            MCPError: the address stands for no server with extensions, or the request is refused.
        """
        resources, members = self._resources, ctx.params or {}
        pin, service = resources.pin(ctx), resources.own_service(ctx)
        own = {key: value for key, value in members.items() if key not in _PROTOCOL_MEMBERS}
        with translate_errors():
            if pin is None or service is None or not await self._has_extensions(service):
                raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
            principal = resources.principal(ctx)
            session = await self._gateway.pinned_sessions.id_of(principal, pin)
            return await resources.request_interactively(
                ctx, session, service, ctx.method, own, unchanged, _as_it_is
            )

    async def _has_extensions(self, service: str) -> bool:
        await self._gateway.probes.wait_for_lists()
        profile = _profile_of(self._gateway, service)
        return profile is not None and bool(profile.extensions or _unnamed(profile))

    async def _answer_skills(
        self, ctx: RequestContext, params: types.PaginatedRequestParams
    ) -> JSON:
        if self._resources.own_service(ctx) is not None:
            return await self._relay(ctx, params)
        refuse_cursor(params)
        principal, uri = self._resources.principal(ctx), str((ctx.params or {}).get("uri"))
        with translate_errors():
            if ctx.method == "skills/list":
                return result_of(ctx, await self._skills.list(principal))
            return result_of(ctx, await self._skills.get(principal, uri))


def _as_it_is(ctx: RequestContext, result: JSON) -> JSON:
    """Return a result with all members of its extension. The state of a question is marked, and no proxy may keep it."""
    if result.get("resultType") == "input_required":
        return mark_request_state(result)
    return {**result, "cacheScope": "private"} if "cacheScope" in result else result
