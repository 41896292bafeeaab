"""The MCP server: one lowlevel server of the SDK over the gateway, for both protocol eras.

The SDK's transports pass requests to it; it passes calls to the router of the gateway. A middleware answers tool calls with
the JSON of the upstream's result: the SDK would validate it a second time and drop members that it does not know.

The eras are the handshake versions, 2024-11-05 to 2025-11-25, here called legacy, and 2026-07-28, here called modern.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from ...access.audit.recorder import OpenRequest
from ...access.audit.requests import RequestAudit
from ...sessions.calls.notices import CallDeferred
from ...sessions.calls.request import RecordedAnswer, Request
from ...sessions.calls.task_records import task_id
from ...sessions.errors import (
    NodeUnavailable,
    OutcomeUnknown,
    OwnedByAnotherNode,
    RequestRefused,
    ServiceUnavailable,
    SessionError,
    SessionNotFound,
    StoreUnavailable,
)
from ...sessions.json_codec import JSON
from ...tools.catalog import SERVICE_META, Catalog
from ...tools.own.session_tools import summary
from ...tools.upstream.negotiation import EVENTS, TASKS
from ..gateway.gateway import Gateway, ttl_ms
from ..gateway.skills import Skills
from ..sdk.access import RequestContext
from ..sdk.caller import (
    COMMAND_SCOPE,
    DELIVERY_SCOPE,
    INSTANCE_META,
    LINE_CALLS,
    NOTE_SCOPE,
    SESSION_META,
    Caller,
    asks_for,
    connection_of,
    declares_tasks,
    is_forwarded,
    is_handed_back,
    is_modern,
    may_ask,
)
from . import results
from .error_translation import as_mcp_error, hide_internal_error, translate_errors
from .extensions import Entry, Extensions
from .forwarded_requests import ForwardedRequests
from .forwarded_subscriptions import ForwardedSubscriptions
from .forwarder import ForwardedNotice, Forwarder
from .introduction import add_introduction
from .legacy_connections import LegacyConnections, notify, set_level
from .listening import SubscriptionHandlers
from .measures import Measure
from .open_calls import OpenCalls, grace_of
from .prompts import Completion, Prompts
from .request_checks import (
    CallParser,
    LoginMissing,
    OwnCall,
    Requester,
    ServiceCall,
    named_session,
    parked_call_state,
    refuse_unencodable,
)
from .resources import Resources, refuse_cursor
from .shared_sessions import SharedSessions
from .state_subscriptions import StateSubscriptions
from .subscriptions import Subscriptions
from .tasks import TASK_TOPIC, Tasks
from .text_arguments import TextArguments

logger = logging.getLogger("statehold.server")

CACHE_HINTS: Mapping[CacheableMethod, CacheHint] = dict.fromkeys(
    ("tools/list", "prompts/list", "resources/templates/list", "resources/list", "resources/read"),
    CacheHint(),
)
"""No client may keep a result that does not say otherwise; see ttl_ms() in server/gateway/gateway.py."""


class StateholdServer(Server[dict[str, Any]]):
    """The MCP server of one gateway. It lives as long as the process; every transport serves the same one."""

    def __init__(self, gateway: Gateway, *, version: str, pinned_name: str | None = None) -> None:
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        super().__init__(
            "statehold",
            version=version,
            title="Statehold",
            cache_hints=CACHE_HINTS,
            get_tool_input_schema=lambda name: self.catalog.schemas.get(name),
            on_list_tools=self._list_tools,
        )
        self._gateway = gateway
        self._requester = requester = Requester(
            pinned_name, auto_session=gateway.config.server.auto_session
        )
        self.open_calls = OpenCalls(gateway, requester)
        self._parser = CallParser(gateway, requester)
        self._shared_sessions = SharedSessions(gateway, requester)
        self._text_arguments = TextArguments(gateway)
        self._legacy_connections = LegacyConnections(gateway.registry.spawn)
        redactor = gateway.registry.core.redactor if gateway.config.audit_arguments else None
        self._audit = RequestAudit(gateway.audit, redactor) if gateway.audit.is_on else None
        self._server_info: JSON = {"name": "statehold", "version": version, "title": "Statehold"}
        forwarded_subscriptions = ForwardedSubscriptions(gateway)
        self.subscriptions = Subscriptions(gateway, self._bus, notify, forwarded_subscriptions.end)
        run, skills = self.open_calls.run_or_resume, Skills(gateway)
        self._resources = Resources(gateway, requester, run, self.subscriptions, skills)
        self._extensions = Extensions(gateway, self._resources, skills)
        prompts = Prompts(self._resources)
        completion = Completion(self._resources, prompts)
        self._tasks = Tasks(gateway, requester, self.open_calls, self._recorded_result)
        for handlers in (self._resources, self._extensions, prompts, completion, self._tasks):
            handlers.register(self)
        self.state_subscriptions = StateSubscriptions(gateway, self._bus, notify)
        self._listening = SubscriptionHandlers(
            self._resources,
            self.state_subscriptions,
            self.subscriptions,
            forwarded_subscriptions,
            self._tasks,
            self._listen,
        )
        self._listening.register(self)
        self.add_request_handler("server/discover", types.RequestParams, self._discover)
        self.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
        self.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._legacy_connections.add
        )
        self.middleware.append(self._middleware)
        self._forwarder = Forwarder(gateway, requester)
        self.forwarded_requests = ForwardedRequests(self, self.call, self.return_notice)
        """Answers the requests of other nodes for sessions of this one."""
        gateway.registry.running_operations.on_changed.append(self._on_task_changed)
        gateway.tools.on_changed.append(self._on_tools_changed)
        gateway.probes.on_prompts_changed.append(self._on_prompts_changed)

    def get_request_handler(self, method: str) -> Entry | None:
        own = super().get_request_handler(method)
        is_ours = method.startswith("events/") and super().get_request_handler("events/list")
        return own or (None if is_ours else self._extensions.handler_of(method))

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        # The SDK passes no options for legacy HTTP; without them it would not declare listChanged.
        options = notification_options or NotificationOptions(
            tools_changed=True, prompts_changed=True
        )
        return super().create_initialization_options(options, *args, **kwargs)

    def get_capabilities(self, *args: Any, **kwargs: Any) -> types.ServerCapabilities:
        # The SDK declares every kind of subscription; of our own resources, only states send updates.
        capabilities = super().get_capabilities(*args, **kwargs)
        if capabilities.resources is not None:
            capabilities.resources.subscribe = self._gateway.offers_state
            capabilities.resources.list_changed = False
        return capabilities

    def stop_listening(self) -> None:
        """End the open `subscriptions/listen` streams, which would keep a server from stopping."""
        self._listen.close()

    @property
    def catalog(self) -> Catalog:
        """The tool list of callers that name their session."""
        return self._gateway.tools.catalog("explicit")

    async def _list_tools(
        self, ctx: RequestContext, params: types.PaginatedRequestParams | None
    ) -> Any:
        refuse_cursor(params)
        catalog = await self._gateway.probes.catalog(self._requester.naming(ctx))
        tools = catalog.definitions if is_modern(ctx) else catalog.legacy_definitions
        if asks_for(ctx, SERVICE_META):
            tools = catalog.with_services(tools)
        if not is_modern(ctx):
            return {"tools": tools}
        return {"tools": tools, "resultType": "complete", "ttlMs": ttl_ms(self._gateway)}

    def connection(self, session_id: str) -> Connection | None:
        """Return the initialized connection of a session of Streamable HTTP."""
        return self._legacy_connections.of_session(session_id)

    async def _on_tools_changed(self) -> None:
        await self._bus.publish(ToolsListChanged())
        self._legacy_connections.notify_all("notifications/tools/list_changed")

    async def _on_prompts_changed(self) -> None:
        await self._bus.publish(PromptsListChanged())
        self._legacy_connections.notify_all("notifications/prompts/list_changed")

    def _on_task_changed(self, session_id: str, operation_id: str) -> None:
        update = ResourceUpdated(uri=TASK_TOPIC + task_id(session_id, operation_id))
        self._gateway.registry.spawn(self._bus.publish, update)

    async def _middleware(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            return await call_next(ctx)
        if self._gateway.opening.delays(ctx.method):
            with translate_errors():
                await self._gateway.opening.wait()
        if ctx.method in ("initialize", "server/discover"):
            with Measure(self._gateway, self._requester, ctx) as measure:
                result = await self._introduce(ctx, await hide_internal_error(call_next, ctx))
                measure.outcome = "ok"
            return result
        if ctx.method != "tools/call" or not connection_of(ctx).initialize_accepted:
            return await self._answer(ctx, call_next)
        if COMMAND_SCOPE in ctx.lifespan_context:
            try:
                ctx = await self._text_arguments.parse(ctx, self._requester.naming(ctx))
            except SessionError as error:
                return await self._error_result(ctx, error)
        elif (line_calls := ctx.lifespan_context.get(LINE_CALLS)) is not None:
            line_calls.open(ctx)
        return await self.call(ctx)

    async def _answer(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Answer a request that is no tool call, or have the owner of its session answer it; see call()."""
        with Measure(self._gateway, self._requester, ctx) as measure:
            return await self._answer_measured(ctx, call_next, measure)

    async def _answer_measured(
        self, ctx: RequestContext, call_next: CallNext, measure: Measure
    ) -> HandlerResult:
        try:
            measure.record = await self._admit(ctx)
        except StoreUnavailable as error:
            logger.error("%s", error)
            raise as_mcp_error(results.store_down()) from None
        try:
            answer = partial(hide_internal_error, call_next, ctx)
            try:
                result = await self._forwarder.run(ctx, answer)
            except MCPError as error:
                if not await self._shared_sessions.allows_read(ctx, error):
                    raise
                result = await self._forwarder.run(ctx, answer)
            measure.outcome = "ok"
            return result
        except (OwnedByAnotherNode, NodeUnavailable, OutcomeUnknown) as error:
            if is_handed_back(ctx, error):
                raise
            measure.outcome = error.code
            raise as_mcp_error(error) from None

    async def _admit(self, ctx: RequestContext) -> OpenRequest | None:
        if self._audit is None or is_forwarded(ctx):  # the node of the client has recorded it
            return None
        session = self._requester.pin(ctx) or named_session(ctx.params or {})
        return await self._audit.admit(ctx, self._requester.principal(ctx), session)

    async def _introduce(self, ctx: RequestContext, result: HandlerResult) -> HandlerResult:
        if not isinstance(result, dict):
            return result
        is_pinned, own = self._requester.pin(ctx) is not None, self._resources.own_service(ctx)
        gateway, note = self._gateway, ctx.lifespan_context.get(NOTE_SCOPE)
        result = await add_introduction(gateway, result, note, is_pinned=is_pinned, own_service=own)
        capabilities = result["capabilities"]
        if ctx.method == "server/discover":  # SEP-2663 forbids it for the older era
            capabilities.setdefault("extensions", {})[TASKS] = {}
        if super().get_request_handler("events/list") is not None:
            # SEP-3415 has the extension; ChatGPT looks for the capability, which the SDK would drop.
            capabilities["events"] = {}
            capabilities.setdefault("extensions", {})[EVENTS] = {}
        return result

    async def call(self, ctx: RequestContext) -> JSON:
        """Answer a tools/call with the JSON of its result, or have the owner of the session answer it.

        Raises:
            MCPError: the call has to be answered with a JSON-RPC error.
            OwnedByAnotherNode, NodeUnavailable: another node forwarded the call, and this one does not serve it.
        """
        with Measure(self._gateway, self._requester, ctx) as measure:
            try:
                if self._audit is not None:
                    measure.record = await self._admit(ctx)
                run = partial(self._run, ctx, measure.record)
                try:
                    result = await run()
                except OwnedByAnotherNode as owner:
                    result = await self._forwarder.forward(ctx, owner, run)
                measure.outcome = results.outcome_of(result)
                return result
            except RequestRefused as error:
                raise MCPError(
                    code=error.rpc_code, message=error.message, data=error.data
                ) from None
            except SessionError as error:
                measure.outcome = error.code
                if is_handed_back(ctx, error):
                    raise
                return await self._error_result(ctx, error)
            except StoreUnavailable as error:
                logger.error("%s", error)
                measure.outcome = ServiceUnavailable.code
                return await self._error_result(ctx, results.store_down())
            except MCPError:
                raise
            except Exception:
                logger.exception("a call of %.100s failed", (ctx.params or {}).get("name"))
                raise MCPError(code=types.INTERNAL_ERROR, message="Internal error") from None

    async def _run(self, ctx: RequestContext, record: OpenRequest | None) -> JSON:
        """Run a tools/call in this process."""
        params = dict(ctx.params or {})
        caller = Caller(ctx, params)
        try:
            refuse_unencodable(params)
            while True:
                call = await self._parser.parse(ctx, params, caller)
                try:
                    if isinstance(call, OwnCall):
                        return await self._call_own_interactively(ctx, params, call, caller)
                    grace = self._gateway.config.server.hand_over or None
                    if caller.modern and declares_tasks(ctx):
                        service = self._gateway.services[call.entry.service]
                        grace = grace_of(service.specs.get(call.entry.tool), caller)
                    if grace is not None or (
                        caller.modern and (parked_call_state(params) is not None or may_ask(ctx))
                    ):
                        return await self._call_service_interactively(
                            ctx, params, call, grace, record
                        )
                    return await self._call_service(call, caller)
                except (SessionNotFound, MCPError) as error:
                    if not await self._shared_sessions.allows_call(ctx, call, error):
                        raise
                    caller.bind(ctx, params)  # it is not that of the owner any more
        except LoginMissing as missing:
            work = partial(self._call_listed, params)
            return await self.open_calls.run_after_login(ctx, params, missing, work)
        finally:
            caller.close()

    async def _call_listed(self, params: JSON, caller: Caller) -> JSON:
        call = await self._parser.parse(caller.ctx, params, caller)
        assert isinstance(call, ServiceCall)
        return await self._call_service(call, caller)

    def return_notice(self, ctx: RequestContext) -> None:
        """Put the notice of a call back for the next answer, because this answer was not delivered."""
        delivery = None if ctx.request is None else ctx.request.scope.get(DELIVERY_SCOPE)
        if isinstance(delivery, ForwardedNotice):
            self._gateway.registry.spawn(self._forwarder.return_notice, delivery)
        else:
            self._gateway.router.return_notice(delivery)

    async def _error_result(
        self, ctx: RequestContext, error: SessionError, *, tool: str | None = None
    ) -> JSON:
        """Return an error as the result of a call. `tool` is the name in its list, None for that in the request."""
        session: JSON | None = None
        form, principal = self._form(ctx), self._requester.principal(ctx)
        if isinstance(error, SessionNotFound) and not self._requester.is_shared(ctx):
            named = named_session(ctx.params or {})
            error = await self._gateway.pinned_sessions.with_near(principal, named, error)
        if error.session_id is not None and form.asks_session:
            with suppress(SessionError, StoreUnavailable):
                session = summary(await self._gateway.registry.info(principal, error.session_id))
        name, naming = tool or (ctx.params or {}).get("name"), self._requester.naming(ctx)
        heading = self._gateway.tools.is_browser_tool(name, naming)
        return results.error_result(error, session, form, heading=heading)

    def _form(self, ctx: RequestContext) -> results.ResultForm:
        asks_session = asks_for(ctx, SESSION_META)
        return results.ResultForm(is_modern(ctx), self._server_info, asks_session)

    async def _discover(
        self, ctx: RequestContext, params: types.RequestParams | None
    ) -> types.DiscoverResult:
        result = await self._handle_discover(ctx, params)
        result.meta = {**(result.meta or {}), INSTANCE_META: self._gateway.own_tool_calls.instance}
        return result

    async def _call_own_interactively(
        self, ctx: RequestContext, params: JSON, call: OwnCall, caller: Caller
    ) -> JSON:
        """Run a call of one of our own tools, or resume one whose caller was asked for input."""
        if not call.tool.asks_caller:
            return await self._call_own(ctx, call, caller)
        if parked_call_state(params) is None:
            call.tool.parse_call(call.context, call.arguments)

        async def work(session: str, asked: Caller) -> JSON:
            return await self._call_own(ctx, call.asked_by(asked), asked)

        # A command repeats no arguments when it answers.
        work_key = call.work_key(has_arguments=caller.options.can_return_input_required)
        return await self.open_calls.run_or_resume(
            ctx, params, call.context.principal, call.session, work_key, work
        )

    async def _call_own(self, ctx: RequestContext, call: OwnCall, caller: Caller) -> JSON:
        calls, meta = self._gateway.own_tool_calls, caller.own_meta
        outcome = await calls.run(call.tool, call.context, call.arguments, meta)
        caller.carry(outcome.delivery)
        if outcome.answer is not None:
            return self._service_result(ctx, outcome.answer, outcome.answer.service)
        result = results.own_tool_result(outcome, call.tool, self._form(ctx))
        if meta.instance is not None:
            result.setdefault("_meta", {})[INSTANCE_META] = calls.instance
        return result

    async def _call_service(self, call: ServiceCall, caller: Caller) -> JSON:
        meta = caller.own_meta
        request = Request(
            call.principal,
            call.session,
            call.entry.service,
            call.entry.tool,
            call.arguments,
            operation_id=meta.operation_id,
            epoch=meta.epoch,
            is_repeat=meta.is_repeat,
            acknowledged_operations=meta.acknowledged_operations,
            run=meta.run_id,
            namespace=self._gateway.config.namespace,
            client=caller.client_name,
            reported_seconds=call.reported_seconds,
            hand_over=caller.hand_over,
            sharee=self._requester.sharee(caller.ctx),
        )
        try:
            answer = await self._gateway.router.call(request, caller)
        except CallDeferred as error:
            caller.carry(error.delivery)
            raise
        if answer.delivery is not None:
            caller.carry(answer.delivery)
        return self._service_result(caller.ctx, answer, call.entry.service)

    async def _call_service_interactively(
        self,
        ctx: RequestContext,
        params: JSON,
        call: ServiceCall,
        grace: float | None,
        record: OpenRequest | None,
    ) -> JSON:
        """Send a call that can be handed over, or whose caller can be asked for input; or resume it."""

        async def work(session: str, caller: Caller) -> JSON:
            return await self._call_service(replace(call, session=session), caller)

        key, owner = f"tools/call {call.entry.name}", call.principal
        return await self.open_calls.run_or_resume(
            ctx, params, owner, call.session, key, work, grace=grace, record=record
        )

    async def _recorded_result(
        self, ctx: RequestContext, answer: RecordedAnswer | SessionError, service: str, tool: str
    ) -> JSON:
        """Return the result of a task as tools/call would have."""
        if isinstance(answer, SessionError):
            return await self._error_result(ctx, answer, tool=tool)
        return self._service_result(ctx, answer, service)

    def _service_result(
        self, ctx: RequestContext, answer: results.ResultSource, service: str
    ) -> JSON:
        is_pinned = self._requester.pin(ctx) is not None
        own_uris = is_pinned and self._resources.own_service(ctx) is not None
        return results.service_result(answer, self._form(ctx), service=service, own_uris=own_uris)
