"""Resources and prompts of the services of a session.

They have no argument for a session, so it is part of the name: a resource is `session://ID/SERVICE/URI` with the upstream's
own URI percent-encoded, and a prompt takes the session as its first argument. Where the session is pinned, lists are the
session's own; elsewhere they do not depend on it: resources are found by their template. The state of a session is a
resource as well, `session://ID/state`, where the toolset `state` is offered.
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
    SessionError,
    SessionNotFound,
    StoreUnavailable,
)
from ...sessions.json_codec import JSON
from ...sessions.records import ID_PREFIX, Principal
from ...sessions.services import Offering
from ...tools.catalog import SESSION_ARGUMENT, session_argument_name
from ...tools.upstream.errors import UpstreamRefused
from ...tools.upstream.service import UpstreamService
from ..gateway.gateway import Gateway
from ..http.response import encode
from ..sdk.access import RequestContext, is_modern
from ..sdk.caller import Caller
from .input_required import SessionWork
from .request_checks import refuse_unsound
from .results import asking, store_down
from .subscriptions import Topic
from .uris import (
    SCHEME,
    contents_addressed,
    contents_in_session,
    messages_in_session,
    page_uri,
    parse_page_uri,
    parse_session_uri,
    parse_state_uri,
    session_template,
    session_uri,
    state_uri,
)

logger = logging.getLogger("statehold.server")

Params = types.PaginatedRequestParams | None
Attend = Callable[[RequestContext, JSON, Principal, str, str, SessionWork], Awaitable[JSON]]
"""Runs the work of a request, parked while its caller is asked for input: context, params, request, what, work."""


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
        principal: Callable[[RequestContext], Principal],
        pin: Callable[[RequestContext], str | None],
        attend: Attend,
    ) -> None:
        self.gateway = gateway
        self.principal = principal
        self.pin = pin
        self._attend = attend
        self.on_listed: Callable[[RequestContext, Topic], None] = lambda ctx, topic: None
        self._hidden: set[tuple[str, str]] = set()

    def register(self, server: Server[Any]) -> None:
        page = types.PaginatedRequestParams
        server.add_request_handler("resources/list", page, self._list)
        server.add_request_handler("resources/templates/list", page, self._templates)
        server.add_request_handler("resources/read", types.ReadResourceRequestParams, self._read)
        server.add_request_handler("prompts/list", page, self._prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, self._prompt)

    # Resources.

    async def _list(self, ctx: RequestContext, params: Params) -> Any:
        refuse_cursor(params)
        found: list[JSON] = []
        pin = self.pin(ctx)
        if pin is not None and self.gateway.offers_state:
            with translated():
                session = await self.gateway.pinned(self.principal(ctx), pin)
            found.append({"uri": state_uri(session), **_STATE})
        async for service, session_id, page in self._pages(ctx, "resources", "resources/list"):
            for resource in _sound(page.get("resources"), types.Resource, service):
                uri: str = resource["uri"]
                if self.own_service(ctx) is None:
                    uri = session_uri(session_id, service, uri)
                found.append({**resource, "uri": uri})
        listed = await self.listed(ctx)
        if listed is not None:
            self.on_listed(ctx, listed)
        return result_of(ctx, {"resources": found})

    async def _templates(self, ctx: RequestContext, params: Params) -> Any:
        refuse_cursor(params)
        if self.pin(ctx) is not None:
            return await self._pinned_templates(ctx)
        await self.gateway.catalog("explicit")
        found: list[JSON] = [
            {
                "uriTemplate": f"{SCHEME}{{{SESSION_ARGUMENT}}}/{quote(service, safe='')}/{{uri}}",
                "name": f"{service} resources",
                "description": f"A resource of {service} in a session; uri is the resource's own URI.",
            }
            for service in self.offering("resources")
        ]
        if self.gateway.offers_state:
            found.insert(0, {"uriTemplate": f"{SCHEME}{{{SESSION_ARGUMENT}}}/state", **_STATE})
        return result_of(ctx, {"resourceTemplates": found})

    async def _pinned_templates(self, ctx: RequestContext) -> JSON:
        found: list[JSON] = []
        pages = self._pages(ctx, "resources", "resources/templates/list")
        async for service, session_id, page in pages:
            for template in _sound(page.get("resourceTemplates"), types.ResourceTemplate, service):
                uri: str = template["uriTemplate"]
                if self.own_service(ctx) is None:
                    uri = session_template(session_id, service, uri)
                found.append({**template, "uriTemplate": uri})
        return result_of(ctx, {"resourceTemplates": found})

    def own_service(self, ctx: RequestContext) -> str | None:
        """Return the service whose own URIs a caller uses: the only one, where the session is pinned."""
        services = list(self.gateway.services)
        return services[0] if self.pin(ctx) is not None and len(services) == 1 else None

    async def address(self, ctx: RequestContext, uri: str) -> tuple[str, str, str]:
        """Return session, service and the upstream's own URI of an address.

        Raises:
            MCPError: it is no address of a resource.
        """
        pin, own = self.pin(ctx), self.own_service(ctx)
        parsed = parse_session_uri(uri)
        if parsed is None:
            found = parse_page_uri(uri) if own is None else (own, uri)
            if found is None or pin is None:
                raise _unknown(uri)
            return await self.gateway.pinned(self.principal(ctx), pin), *found
        await self._refuse_others(ctx, parsed[0])
        return parsed

    async def topic(self, ctx: RequestContext, uri: str) -> Topic:
        """Return the resource of a service at an address.

        Raises:
            MCPError: it is no address of a resource, or the session cannot be used.
        """
        with translated():
            session, service, own = await self.address(ctx, uri)
            used = await self.gateway.registry.ready(
                self.principal(ctx), session, self.gateway.config.namespace
            )
            return Topic(used.id, service, own)

    async def subscribe(self, ctx: RequestContext, uri: str) -> Topic:
        """Subscribe to a resource of a service, and return its topic.

        Raises:
            MCPError: it is no address of a resource, or the service refuses the subscription.
        """
        await self.gateway.catalog("explicit")
        topic = await self.topic(ctx, uri)
        with translated():
            wanted: JSON = {"uri": topic.uri}
            try:
                await self.forward(ctx, topic.session, topic.service, "resources/subscribe", wanted)
            except UpstreamRefused as error:
                if error.rpc_code != types.METHOD_NOT_FOUND:
                    raise
                message = f"{topic.service} does not tell when its resources change"
                raise MCPError(code=types.INVALID_PARAMS, message=message) from None
        return topic

    async def listed(self, ctx: RequestContext) -> Topic | None:
        """Return the topic of the resource list of a pinned session whose only service keeps its own URIs."""
        pin, service = self.pin(ctx), self.own_service(ctx)
        if pin is None or service is None:
            return None
        with translated():
            return Topic(await self.gateway.pinned(self.principal(ctx), pin), service, "")

    async def _read(self, ctx: RequestContext, params: types.ReadResourceRequestParams) -> Any:
        # Wait for the probes: a second service would change the form of the addresses.
        await self.gateway.catalog("explicit")
        state_of = parse_state_uri(str(params.uri))
        if state_of is not None and self.gateway.offers_state:
            return await self._read_state(ctx, state_of)
        given = str(params.uri)
        with translated():
            page = parse_page_uri(given)
            if page is not None and self.pin(ctx) is None:
                return result_of(ctx, await self._page(given, *page))
            session, service, uri = await self.address(ctx, given)
            finish = _as_it_is
            if uri != given:
                finish = partial(contents_in_session, service=service, uri=uri)
            wanted: JSON = {"uri": uri}
            try:
                return await self._asking(ctx, session, service, "resources/read", wanted, finish)
            except UpstreamRefused as error:
                if error.data == {"uri": uri}:
                    error.data = {"uri": given}
                raise

    async def _page(self, given: str, service: str, uri: str) -> JSON:
        """Read the page of an MCP App by its address in the tool list, without a session."""
        upstream = self.gateway.services.get(service)
        found = await upstream.read_page(uri) if isinstance(upstream, UpstreamService) else None
        if found is None:
            raise _unknown(given)
        return contents_addressed(found, uri, partial(page_uri, service))

    async def _read_state(self, ctx: RequestContext, session: str) -> JSON:
        with translated():
            await self._refuse_others(ctx, session)
            states, namespace = self.gateway.registry.states, self.gateway.config.namespace
            found = await states.read(self.principal(ctx), session, namespace=namespace)
        part: JSON = {
            "uri": state_uri(found.session_id),
            "mimeType": _STATE["mimeType"],
            "text": encode(found.value).decode(),
            "_meta": {"statehold/state": {"version": found.version}},
        }
        return result_of(ctx, {"contents": [part]})

    async def followed(self, ctx: RequestContext, uri: str) -> tuple[str, int]:
        """Return session id and version of the state at an address, for a subscription to it.

        Raises:
            MCPError: it is no address of a state, or of none that the caller may see. Addresses with a session's name are
                refused: a name may pass to another session.
        """
        session = parse_state_uri(uri) if self.gateway.offers_state else None
        if session is None or uri != state_uri(session) or not session.startswith(ID_PREFIX):
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"Changes are told of {SCHEME}ID/state only, with the id of a session",
            )
        with translated():
            await self._refuse_others(ctx, session)
            states, namespace = self.gateway.registry.states, self.gateway.config.namespace
            return await states.version(self.principal(ctx), session, namespace)

    async def _refuse_others(self, ctx: RequestContext, session: str) -> None:
        """Refuse any other session where the session is pinned."""
        pin = self.pin(ctx)
        if pin is not None and session not in (
            pin,
            await self.gateway.pinned(self.principal(ctx), pin),
        ):
            raise SessionNotFound

    # Prompts.

    async def _prompts(self, ctx: RequestContext, params: Params) -> Any:
        refuse_cursor(params)
        await self.gateway.catalog("explicit")
        pinned = self.pin(ctx) is not None
        found: list[JSON] = []
        for name, (service, prompt) in self.known_prompts().items():
            arguments = list(prompt.get("arguments") or [])
            if not pinned:
                arguments.insert(0, {"name": session_argument(prompt), "required": True})
            description = prompt.get("description") or f"A prompt of {service}."
            found.append(
                {**prompt, "name": name, "description": description, "arguments": arguments}
            )
        return result_of(ctx, {"prompts": found})

    async def _prompt(self, ctx: RequestContext, params: types.GetPromptRequestParams) -> Any:
        await self.gateway.catalog("explicit")
        known = self.known_prompts().get(params.name)
        if known is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name:.128}")
        arguments = dict(params.arguments or {})
        pin = self.pin(ctx)
        with translated():
            if pin is not None:
                session = await self.gateway.pinned(self.principal(ctx), pin)
            else:
                session = arguments.pop(session_argument(known[1]), "")
            if not session:
                missing = session_argument(known[1])
                raise SessionNotFound(f"{missing} is missing: call session_create first.")
            wanted: JSON = {"name": known[1]["name"], "arguments": arguments}
            own = self.own_service(ctx) is not None
            finish = _as_it_is if own else partial(messages_in_session, service=known[0])
            return await self._asking(ctx, session, known[0], "prompts/get", wanted, finish)

    def known_prompts(self) -> dict[str, tuple[str, JSON]]:
        """The prompts of all services by name; of two with one name the first service's is served."""
        found: dict[str, tuple[str, JSON]] = {}
        for service in self.offering("prompts"):
            prefix = self.gateway.config.services[service].prefix
            for prompt in cast("Offering", self.gateway.services[service]).prompts:
                name = prefix + prompt["name"]
                if name in found and (service, name) not in self._hidden:
                    self._hidden.add((service, name))
                    logger.warning("prompt %s of %s is hidden by another", name, service)
                found.setdefault(name, (service, prompt))
        return found

    # Both.

    def offering(self, capability: str) -> list[str]:
        """The services that have a capability, as far as they were probed."""
        services = self.gateway.services.items()
        return [
            name
            for name, service in services
            if isinstance(service, Offering) and capability in service.capabilities
        ]

    async def _pages(
        self, ctx: RequestContext, capability: str, method: str
    ) -> AsyncGenerator[tuple[str, str, JSON]]:
        pin = self.pin(ctx)
        if pin is None:
            return
        await self.gateway.catalog("explicit")
        with translated():
            session = await self.gateway.pinned(self.principal(ctx), pin)
        for service in self.offering(capability):
            cursor: object = None
            for _ in range(100):
                params = {"cursor": cursor} if cursor else {}
                try:
                    with translated(but=_OF_ONE_SERVICE):
                        page, session_id = await self.forward(ctx, session, service, method, params)
                except _OF_ONE_SERVICE as error:
                    # The other services are still listed.
                    logger.info("%s of %s is left out: %s", method, service, error)
                    break
                yield service, session_id, page
                cursor = page.get("nextCursor")
                if not isinstance(cursor, str) or not cursor:
                    break

    async def forward(
        self, ctx: RequestContext, session: str, service: str, method: str, params: JSON
    ) -> tuple[JSON, str]:
        """Forward a request. A 2026-07-28 client cannot be asked for input during it."""
        given = ctx.params or {}
        refuse_unsound(given)
        caller = Caller(ctx, given)
        request = self._request(ctx, session, service, method)
        try:
            found, used = await self.gateway.router.forward(request, method, params, caller)
        finally:
            caller.close()
        return found, used.id

    async def _asking(
        self,
        ctx: RequestContext,
        session: str,
        service: str,
        method: str,
        params: JSON,
        finish: Callable[[JSON, str], JSON],
    ) -> JSON:
        """Forward a request during which the caller may be asked; `finish` takes its result and the session's id."""
        given = dict(ctx.params or {})
        refuse_unsound(given)

        async def work(session: str, caller: Caller) -> JSON:
            request = self._request(ctx, session, service, method)
            found, used = await self.gateway.router.forward(request, method, params, caller)
            return result_of(ctx, finish(found, used.id))

        what = f"{method} {service} {params.get('name') or params.get('uri')}"
        return await self._attend(ctx, given, self.principal(ctx), session, what, work)

    def _request(self, ctx: RequestContext, session: str, service: str, method: str) -> Request:
        namespace = self.gateway.config.namespace
        return Request(self.principal(ctx), session, service, method, {}, namespace=namespace)


class translated:
    """Session errors as JSON-RPC errors, for requests whose results have no `isError`."""

    def __init__(self, *, but: tuple[type[Exception], ...] = ()) -> None:
        self._but = but

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, self._but):
            return
        if isinstance(error, StoreUnavailable):
            logger.error("%s", error)
            error = store_down()
        if isinstance(error, UpstreamRefused):
            raise MCPError(code=error.rpc_code, message=error.message, data=error.data) from None
        if isinstance(error, SessionError):
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"{error.code}: {error.message} {error.recovery}",
                data=error.details(),
            ) from None


_OF_ONE_SERVICE = (
    ServiceNotBound,
    ServiceUnavailable,
    ConnectionLost,
    OutcomeUnknown,
    CallTimedOut,
    UpstreamRefused,
)
"""Errors that keep one service out of a list; the other services are listed."""


def _sound(resources: object, kind: type[BaseModel], service: str) -> Generator[JSON]:
    """Yield the resources that a client would accept: one broken resource would cost it the whole list."""
    for resource in cast("list[object]", resources) if isinstance(resources, list) else ():
        try:
            kind.model_validate(resource, by_name=False)
        except ValidationError:
            logger.warning("%s lists a malformed resource", service)
        else:
            yield cast("JSON", resource)


def refuse_cursor(params: Params) -> None:
    """Refuse a cursor: no list of ours has a second page.

    Raises:
        MCPError: there is one.
    """
    if params is not None and params.cursor is not None:
        raise MCPError(code=types.INVALID_PARAMS, message="There is no such cursor")


def _unknown(uri: str) -> MCPError:
    message = f"Unknown resource: use {SCHEME}ID/SERVICE/URI, the URI percent-encoded"
    return MCPError(code=types.INVALID_PARAMS, message=message, data={"uri": uri})


def _as_it_is(found: JSON, session_id: str) -> JSON:
    return found


def session_argument(prompt: JSON) -> str:
    return session_argument_name({argument["name"] for argument in prompt.get("arguments") or ()})


def result_of(ctx: RequestContext, found: JSON) -> JSON:
    asks = found.get("resultType") == "input_required"
    found = {key: value for key, value in found.items() if key not in ("_meta", "resultType")}
    if asks:
        return {**asking(found), "resultType": "input_required"}
    return {**found, "resultType": "complete"} if is_modern(ctx) else found


__all__ = ["Resources", "refuse_cursor", "result_of", "session_argument", "translated"]
