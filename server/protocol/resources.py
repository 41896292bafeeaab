"""Resources of the services of a session.

The address of a resource contains its session: `session://ID/SERVICE/URI`, with the upstream's own URI percent-encoded. A
client with a pinned session gets the resource list of that session; other clients get the same templates, whatever their
sessions. With the toolset `state`, the state of a session is a resource as well: `session://ID/state`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from typing import Any, cast
from urllib.parse import quote

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from ...sessions.calls.request import Request
from ...sessions.errors import (
    CallTimedOut,
    ConnectionLost,
    OutcomeUnknown,
    ServiceNotBound,
    ServiceUnavailable,
    SessionNotFound,
)
from ...sessions.ids import ID_PREFIX
from ...sessions.json_codec import JSON, encode
from ...sessions.records import Principal
from ...sessions.services import Offering
from ...tools.catalog import SESSION_ARGUMENT
from ...tools.own.view_tools import PAGE_URI, read_page
from ...tools.upstream.errors import UpstreamRefused
from ...tools.upstream.paging import Paging
from ...tools.upstream.service import UpstreamService
from ..gateway.gateway import Gateway, ttl_ms
from ..gateway.list_changes import PROMPTS, TOOLS
from ..gateway.skills import Skills
from ..gateway.uris import (
    SCHEME,
    address_contents,
    address_contents_in_session,
    matches_template,
    page_uri,
    parse_page_uri,
    parse_session_uri,
    parse_state_uri,
    session_template,
    session_uri,
    state_uri,
)
from ..sdk.access import RequestContext
from ..sdk.caller import Caller, connection_of, is_modern
from .error_translation import translate_errors
from .open_calls import SessionWork
from .request_checks import Requester, refuse_unencodable
from .results import mark_request_state
from .subscriptions import Subscriptions, Topic

logger = logging.getLogger("statehold.server")

Params = types.PaginatedRequestParams | None
RunOrResume = Callable[[RequestContext, JSON, Principal, str, str, SessionWork], Awaitable[JSON]]
"""Runs the work of a request that may ask its caller for input; see OpenCalls.run_or_resume()."""

_STATE: JSON = {
    "name": "state",
    "title": "State of the session",
    "description": "The JSON object that a session carries, as state_get returns it.",
    "mimeType": "application/json",
}


class Resources:
    """The resource handlers of one server."""

    def __init__(
        self,
        gateway: Gateway,
        requester: Requester,
        run_or_resume: RunOrResume,
        subscriptions: Subscriptions,
        skills: Skills,
    ) -> None:
        self.gateway = gateway
        self.principal = requester.principal
        self._sharee = requester.sharee
        self.pin = requester.pin
        self._run_or_resume = run_or_resume
        self._subscriptions = subscriptions
        self._skills = skills

    def register(self, server: Server[Any]) -> None:
        page = types.PaginatedRequestParams
        server.add_request_handler("resources/list", page, self._list_resources)
        server.add_request_handler("resources/templates/list", page, self._list_templates)
        server.add_request_handler(
            "resources/read", types.ReadResourceRequestParams, self._read_resource
        )

    async def _list_resources(self, ctx: RequestContext, params: Params) -> Any:
        refuse_cursor(params)
        resources: list[JSON] = []
        pin = self.pin(ctx)
        if pin is not None and self.gateway.offers_state:
            with translate_errors():
                session = await self.gateway.pinned_sessions.id_of(self.principal(ctx), pin)
            resources.append({"uri": state_uri(session), **_STATE})
        pages = self._read_pages(ctx, "resources/list", "resources")
        async for service, session_id, items in pages:
            for resource in _valid_items(items, types.Resource, service):
                uri: str = resource["uri"]
                if self.own_service(ctx) is None:
                    uri = session_uri(session_id, service, uri)
                resources.append({**resource, "uri": uri})
        list_topic = await self.list_topic(ctx)
        if list_topic is not None and not is_modern(ctx):
            # A legacy client has no request with which it subscribes to a list.
            self._subscriptions.join(connection_of(ctx), list_topic, self.principal(ctx), "")
        return result_of(ctx, {"resources": resources})

    async def _list_templates(self, ctx: RequestContext, params: Params) -> Any:
        refuse_cursor(params)
        if self.pin(ctx) is not None:
            return await self._list_pinned_templates(ctx)
        await self.gateway.probes.catalog("explicit")
        templates: list[JSON] = [
            {
                "uriTemplate": f"{SCHEME}{{{SESSION_ARGUMENT}}}/{quote(service, safe='')}/{{uri}}",
                "name": f"{service} resources",
                "description": f"A resource of {service} in a session; uri is the resource's own URI.",
            }
            for service in self.services_with("resources")
        ]
        if self.gateway.offers_state:
            templates.insert(0, {"uriTemplate": f"{SCHEME}{{{SESSION_ARGUMENT}}}/state", **_STATE})
        return result_of(ctx, {"resourceTemplates": templates, "ttlMs": ttl_ms(self.gateway)})

    async def _list_pinned_templates(self, ctx: RequestContext) -> JSON:
        templates: list[JSON] = []
        pages = self._read_pages(ctx, "resources/templates/list", "resourceTemplates")
        async for service, session_id, items in pages:
            valid = [*_valid_items(items, types.ResourceTemplate, service)]
            with translate_errors():
                admitted = await self.gateway.admit_items(
                    service, session_id, "template", "uriTemplate", valid
                )
            for template in admitted:
                uri: str = template["uriTemplate"]
                if self.own_service(ctx) is None:
                    uri = session_template(session_id, service, uri)
                templates.append({**template, "uriTemplate": uri})
        return result_of(ctx, {"resourceTemplates": templates})

    def own_service(self, ctx: RequestContext) -> str | None:
        """Return the service whose own URIs a caller uses: in a pinned session, the only service; otherwise None."""
        services = list(self.gateway.services)
        return services[0] if self.pin(ctx) is not None and len(services) == 1 else None

    async def resolve_address(self, ctx: RequestContext, uri: str) -> tuple[str, str, str]:
        """Return session, service and the upstream's own URI of an address.

        Raises:
            MCPError: the text is no address of a resource.
            SessionNotFound: the address is in another session than the pinned one.
        """
        pin, own_service = self.pin(ctx), self.own_service(ctx)
        session_address = parse_session_uri(uri)
        if session_address is None:
            page_address = parse_page_uri(uri) if own_service is None else (own_service, uri)
            if page_address is None and pin is not None and ":" in uri:
                owner = await self._find_owner(ctx, uri)
                page_address = None if owner is None else (owner, uri)
            if page_address is None or pin is None:
                raise _unknown_resource(uri)
            return await self.gateway.pinned_sessions.id_of(self.principal(ctx), pin), *page_address
        await self._refuse_others(ctx, session_address[0])
        return session_address

    async def _find_owner(self, ctx: RequestContext, uri: str) -> str | None:
        """Return the only service of the pinned session with a resource of this URI, which a server named in its own words.

        It is the one that lists the URI, or a template for it, or the only one with resources; None if there are several.
        """
        bound_services: set[str] = set()
        owners: set[str] = set()
        for method, key, field in (
            ("resources/list", "resources", "uri"),
            ("resources/templates/list", "resourceTemplates", "uriTemplate"),
        ):
            async for service, _, items in self._read_pages(ctx, method, key):
                bound_services.add(service)
                if any(matches_template(item.get(field), uri) for item in items):
                    owners.add(service)
        owners = owners or bound_services
        return owners.pop() if len(owners) == 1 else None

    async def find_topic(self, ctx: RequestContext, uri: str) -> Topic:
        """Return the topic of the resource at an address.

        Raises:
            MCPError: the text is no address of a resource, or the session cannot be used.
        """
        with translate_errors():
            session, service, upstream_uri = await self.resolve_address(ctx, uri)
            live_session = await self.gateway.registry.ready(
                self.principal(ctx), session, self.gateway.config.namespace
            )
            return Topic(live_session.id, service, upstream_uri)

    async def subscribe(self, ctx: RequestContext, uri: str) -> Topic:
        """Subscribe to a resource of a service, and return its topic.

        Raises:
            MCPError: the text is no address of a resource, or the service refuses the subscription.
        """
        await self.gateway.probes.catalog("explicit")
        topic = await self.find_topic(ctx, uri)
        with translate_errors():
            request_params: JSON = {"uri": topic.uri}
            try:
                await self.request_service(
                    ctx, topic.session, topic.service, "resources/subscribe", request_params
                )
            except UpstreamRefused as error:
                if error.rpc_code != types.METHOD_NOT_FOUND:
                    raise
                message = f"{topic.service} does not notify of changed resources"
                raise MCPError(code=types.INVALID_PARAMS, message=message) from None
        return topic

    async def list_topic(self, ctx: RequestContext) -> Topic | None:
        """Return the topic of the resource list of a pinned session with a single service; otherwise None."""
        pin, service = self.pin(ctx), self.own_service(ctx)
        if pin is None or service is None:
            return None
        with translate_errors():
            return Topic(
                await self.gateway.pinned_sessions.id_of(self.principal(ctx), pin), service, ""
            )

    async def announced_lists(
        self, ctx: RequestContext, requested: types.SubscriptionFilter
    ) -> dict[Topic, str]:
        """Return the topics of lists whose changes the services of a pinned session announce, with their notifications.

        Without a session of this process there are none; changes of the lists of all clients have no topic.
        """
        methods = {
            TOOLS: requested.tools_list_changed,
            PROMPTS: requested.prompts_list_changed,
        }
        pin = self.pin(ctx)
        if pin is None or not any(methods.values()):
            return {}
        with translate_errors():
            session = await self.gateway.pinned_sessions.find_id(self.principal(ctx), pin)
        if session is None:
            return {}
        wanted = [method for method, is_requested in methods.items() if is_requested]
        services = self.gateway.services
        return {Topic(session, name, method): method for name in services for method in wanted}

    async def _read_resource(
        self, ctx: RequestContext, params: types.ReadResourceRequestParams
    ) -> Any:
        # Wait for the probes: a second service would change the form of the addresses.
        await self.gateway.probes.catalog("explicit")
        if str(params.uri) == PAGE_URI and "view" in self.gateway.config.toolsets:
            return result_of(ctx, {"contents": [read_page()]})
        state_session = parse_state_uri(str(params.uri))
        if state_session is not None and self.gateway.offers_state:
            return await self._read_state(ctx, state_session)
        requested_uri = str(params.uri)
        with translate_errors():
            page = parse_page_uri(requested_uri)
            if page is not None and self.pin(ctx) is None:
                return result_of(ctx, await self._read_page(requested_uri, *page))
            if self.own_service(ctx) is None:
                file = await self._skills.read(self.principal(ctx), requested_uri)
                if file is not None:
                    return result_of(ctx, file)
            session, service, uri = await self.resolve_address(ctx, requested_uri)
            finish = unchanged
            if uri != requested_uri:
                finish = partial(address_contents_in_session, service=service, uri=uri)
            request_params: JSON = {"uri": uri}
            try:
                return await self.request_interactively(
                    ctx, session, service, "resources/read", request_params, finish
                )
            except UpstreamRefused as error:
                if error.data == {"uri": uri}:
                    error.data = {"uri": requested_uri}
                raise

    async def _read_page(self, requested_uri: str, service: str, uri: str) -> JSON:
        """Read the page of an MCP App by its address in the tool list, which names no session."""
        upstream = self.gateway.services.get(service)
        result = await upstream.read_page(uri) if isinstance(upstream, UpstreamService) else None
        if result is None:
            raise _unknown_resource(requested_uri)
        return address_contents(result, uri, partial(page_uri, service))

    async def _read_state(self, ctx: RequestContext, session: str) -> JSON:
        with translate_errors():
            await self._refuse_others(ctx, session)
            states, namespace = self.gateway.registry.states, self.gateway.config.namespace
            state = await states.read(self.principal(ctx), session, namespace=namespace)
        part: JSON = {
            "uri": state_uri(state.session_id),
            "mimeType": _STATE["mimeType"],
            "text": encode(state.value).decode(),
            "_meta": {"statehold/state": {"version": state.version}},
        }
        return result_of(ctx, {"contents": [part]})

    async def find_state(self, ctx: RequestContext, uri: str) -> tuple[str, int]:
        """Return session id and version of the state at an address, for a subscription to it.

        Raises:
            MCPError: the text is no address of a state, or the caller may not see that state. An address with the name of a
                session is refused, since a name may pass to another session.
        """
        session = parse_state_uri(uri) if self.gateway.offers_state else None
        if session is None or uri != state_uri(session) or not session.startswith(ID_PREFIX):
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"Only {SCHEME}ID/state, with the id of a session, sends notifications of changes",
            )
        with translate_errors():
            await self._refuse_others(ctx, session)
            states, namespace = self.gateway.registry.states, self.gateway.config.namespace
            return await states.version(self.principal(ctx), session, namespace)

    async def _refuse_others(self, ctx: RequestContext, session: str) -> None:
        """Refuse any other session where the session is pinned."""
        pin = self.pin(ctx)
        if pin is not None and session not in (
            pin,
            await self.gateway.pinned_sessions.id_of(self.principal(ctx), pin),
        ):
            raise SessionNotFound

    def services_with(self, capability: str) -> list[str]:
        """Return the names of the probed services that have a capability."""
        services = self.gateway.services.items()
        return [
            name
            for name, service in services
            if isinstance(service, Offering) and capability in service.capabilities
        ]

    async def _read_pages(
        self, ctx: RequestContext, method: str, key: str
    ) -> AsyncGenerator[tuple[str, str, list[JSON]]]:
        """Yield the pages of a list of the pinned session: service, id of the session, items."""
        pin = self.pin(ctx)
        if pin is None:
            return
        await self.gateway.probes.catalog("explicit")
        with translate_errors():
            session = await self.gateway.pinned_sessions.id_of(self.principal(ctx), pin)
        for service in self.services_with("resources"):
            paging = Paging(service, method)
            while paging.is_open:
                page: JSON = {}
                session_id = ""
                try:
                    with paging.next_page(), translate_errors(but=_OF_ONE_SERVICE):
                        page, session_id = await self.request_service(
                            ctx, session, service, method, paging.params
                        )
                except _OF_ONE_SERVICE as error:
                    # The other services are still listed.
                    logger.info("%s of %s is left out: %s", method, service, error)
                    break
                if not paging.is_open:
                    break
                items: object = page.get(key)
                listed = cast("list[object]", items) if isinstance(items, list) else []
                yield service, session_id, paging.add(listed, page.get("nextCursor"))

    async def request_service(
        self, ctx: RequestContext, session: str, service: str, method: str, params: JSON
    ) -> tuple[JSON, str]:
        """Send a request to a service; return its result and the session's id. A modern client cannot be asked for input."""
        params_of_caller = ctx.params or {}
        refuse_unencodable(params_of_caller)
        caller = Caller(ctx, params_of_caller)
        request = self._request(ctx, session, service, method)
        try:
            result, live_session = await self.gateway.router.request_service(
                request, method, params, caller
            )
        finally:
            caller.close()
        return result, live_session.id

    async def request_interactively(
        self,
        ctx: RequestContext,
        session: str,
        service: str,
        method: str,
        params: JSON,
        finish: Callable[[JSON, str], JSON],
        form: Callable[[RequestContext, JSON], JSON] | None = None,
    ) -> JSON:
        """Send a request to a service that may ask for input. `finish` turns result and session id into the answer, and
        `form` that into one for the era of the caller; None: result_of().
        """
        params_of_caller = dict(ctx.params or {})
        refuse_unencodable(params_of_caller)

        async def work(session: str, caller: Caller) -> JSON:
            request = self._request(ctx, session, service, method)
            result, live_session = await self.gateway.router.request_service(
                request, method, params, caller
            )
            if method == "resources/read":
                await self.gateway.admit_page(service, live_session.id, params["uri"], result)
            return (form or result_of)(ctx, finish(result, live_session.id))

        work_key = f"{method} {service} {params.get('name') or params.get('uri')}"
        return await self._run_or_resume(
            ctx, params_of_caller, self.principal(ctx), session, work_key, work
        )

    def _request(self, ctx: RequestContext, session: str, service: str, method: str) -> Request:
        namespace = self.gateway.config.namespace
        return Request(
            self.principal(ctx),
            session,
            service,
            method,
            {},
            namespace=namespace,
            sharee=self._sharee(ctx),
        )


_OF_ONE_SERVICE = (
    ServiceNotBound,
    ServiceUnavailable,
    ConnectionLost,
    OutcomeUnknown,
    CallTimedOut,
    UpstreamRefused,
)
"""Errors that keep one service out of a list; the other services are listed."""


def _valid_items(resources: list[JSON], kind: type[BaseModel], service: str) -> Generator[JSON]:
    """Yield the valid items of a list of `kind`: a client refuses a whole list with one malformed item."""
    for resource in resources:
        try:
            kind.model_validate(resource, by_name=False)
        except ValidationError:
            logger.warning("%s lists a malformed resource", service)
        else:
            yield resource


def refuse_cursor(params: Params) -> None:
    """Refuse a cursor: our lists have one page.

    Raises:
        MCPError: the parameters have a cursor.
    """
    if params is not None and params.cursor is not None:
        raise MCPError(code=types.INVALID_PARAMS, message="There is no such cursor")


def _unknown_resource(uri: str) -> MCPError:
    message = f"Unknown resource: use {SCHEME}ID/SERVICE/URI, the URI percent-encoded"
    return MCPError(code=types.INVALID_PARAMS, message=message, data={"uri": uri})


def unchanged(result: JSON, session_id: str) -> JSON:
    return result


def result_of(ctx: RequestContext, result: JSON) -> JSON:
    """Return the result of a service as the era of the caller has it, without the service's `_meta`."""
    asks = result.get("resultType") == "input_required"
    result = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    if asks:
        return {**mark_request_state(result), "resultType": "input_required"}
    return {**result, "resultType": "complete"} if is_modern(ctx) else result
