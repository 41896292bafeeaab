"""Requests of clients: who sent them, whether an upstream can be sent their parameters, and the calls that are ready to run.

A lone surrogate, NaN, infinity, or too deep nesting would make the transport to the upstream fail, and other callers may
share that transport. Such parameters are refused before the request has an effect.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import mcp_types as types
import orjson
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.shared.exceptions import MCPError

from ...access.claims import VerifiedCaller
from ...sessions.calls.deadline import WaitProgress
from ...sessions.calls.receipts import digest_of
from ...sessions.errors import (
    InvalidArgument,
    PendingLogin,
    ServiceUnavailable,
    SessionError,
    StoreUnavailable,
)
from ...sessions.json_codec import JSON
from ...sessions.records import LOCAL, Principal
from ...sessions.wording import did_you_mean
from ...tools.catalog import FALLBACK_ARGUMENT, SESSION_ARGUMENT, CatalogEntry, Naming
from ...tools.own.own_tool import OwnTool, ToolContext, missing_session
from ...tools.tool_names import listed_name, own_prefix
from ..gateway.gateway import Gateway
from ..sdk.access import RequestContext
from ..sdk.caller import (
    AUTO_SCOPE,
    COMMAND_SCOPE,
    OWNER_SCOPE,
    PARKED_STATE,
    PIN_SCOPE,
    PRINCIPAL_SCOPE,
    SHAREE_SCOPE,
    Caller,
    connection_of,
    is_modern,
)
from .legacy_connections import AutoSessions

MAX_DEPTH: Final = 200
"""Levels that the parameters of a request may have."""

_ENCODABLE: Final = 254
"""Levels that orjson encodes."""

_STRICT: Final = json.JSONEncoder(allow_nan=False, check_circular=False)


def refuse_unencodable(params: Mapping[str, Any]) -> None:
    """Refuse parameters that a transport cannot encode.

    Raises:
        InvalidArgument: the parameters hold a fault, which the error names.
    """
    if _passes_fast_check(params):
        return
    fault = _find_fault(params)
    if fault is not None:
        raise InvalidArgument(f"The request holds {fault}.")


def _passes_fast_check(params: Mapping[str, Any]) -> bool:
    try:
        text = orjson.dumps(params)
        if text.count(b"{") + text.count(b"[") > MAX_DEPTH:
            orjson.dumps(_nest(params))
        if b"null" in text:
            # orjson writes NaN and infinity as null.
            _STRICT.encode(params)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _nest(value: object) -> object:
    """Return a value so deep that orjson refuses it if the value has more than MAX_DEPTH levels."""
    for _ in range(_ENCODABLE - MAX_DEPTH):
        value = [value]
    return value


def _find_fault(params: object) -> str | None:
    """Return the first fault in the parameters, None if there is none. Integers beyond 64 bits are no fault."""
    queue: list[tuple[object, int]] = [(params, 1)]
    while queue:
        value, depth = queue.pop()
        if isinstance(value, Mapping | list) and depth > MAX_DEPTH:
            return f"more than {MAX_DEPTH} levels of nesting"
        if isinstance(value, Mapping):
            for key, item in cast("Mapping[object, object]", value).items():
                queue += (key, depth + 1), (item, depth + 1)
        elif isinstance(value, list):
            queue += [(item, depth + 1) for item in cast("list[object]", value)]
        elif isinstance(value, str) and not _is_text(value):
            return "a text that is no Unicode (half of a surrogate pair)"
        elif isinstance(value, float) and not math.isfinite(value):
            return "a number that is not finite"
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class LoginMissing(ServiceUnavailable):
    """Raised for a tool of a service that cannot be listed before the person of the caller is logged in there."""

    def __init__(self, message: str, service: str, login: PendingLogin) -> None:
        super().__init__(message)
        self.service = service
        self.awaited = login


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call of one of our own tools."""

    tool: OwnTool
    context: ToolContext
    arguments: JSON

    @property
    def session(self) -> str:
        """The session that it names, also by a task; empty for none."""
        task = str(self.arguments.get("task_id") or "").partition(".")[0]
        return str(self.context.pinned_session or self.arguments.get("session_id") or task)

    def work_key(self, *, has_arguments: bool) -> str:
        """Return the key of its work, so that only a request for the same work continues it; see OpenCalls."""
        key = f"tools/call {self.tool.name}"
        return f"{key} {digest_of('', self.tool.name, self.arguments)}" if has_arguments else key

    def asked_by(self, caller: Caller) -> OwnCall:
        """Return the call with the caller that it may ask."""
        return replace(self, context=replace(self.context, caller=caller))


@dataclass(frozen=True, slots=True)
class ServiceCall:
    """A call of a service's tool in a session."""

    principal: Principal
    session: str
    """An id, or a name of the principal's."""
    entry: CatalogEntry
    arguments: JSON
    reported_seconds: float
    """Seconds of waiting for the service that were reported to the caller."""


def parked_call_state(params: Mapping[str, Any]) -> str | None:
    """Return the `requestState` with which a request continues a parked call, None for any other request."""
    state = params.get("requestState")
    return state if isinstance(state, str) and state.startswith(PARKED_STATE) else None


def named_session(params: Mapping[str, Any]) -> object:
    """Return the session that the arguments of a call, or the id of a task, name; None for no session."""
    if isinstance(task := params.get("taskId"), str):
        return task.partition(".")[0]
    arguments: object = params.get("arguments")
    if not isinstance(arguments, dict):
        return None
    fields = cast("JSON", arguments)
    return fields.get(FALLBACK_ARGUMENT, fields.get(SESSION_ARGUMENT))


class Requester:
    """Finds out from a request who sent it, and how its session is named. It keeps nothing between requests."""

    def __init__(self, pinned_name: str | None, *, auto_session: bool) -> None:
        self._pinned_name = pinned_name
        self._auto_session = auto_session

    def principal(self, ctx: RequestContext) -> Principal:
        """Return the principal as whose request it runs: its caller, or the owner of a session that is shared."""
        if ctx.request is not None:
            scope = ctx.request.scope
            other = scope.get(PRINCIPAL_SCOPE) or scope.get(OWNER_SCOPE)
            if other is not None:
                return other
        return _principal()

    def groups(self) -> tuple[str, ...]:
        """Return the groups of the caller of this request, which its issuer names. A forwarded request has none."""
        user = auth_context_var.get()
        return user.groups if isinstance(user, VerifiedCaller) else ()

    def is_shared(self, ctx: RequestContext) -> bool:
        """Whether a request runs as one of the owner of a session that is shared with its caller."""
        return ctx.request is not None and OWNER_SCOPE in ctx.request.scope

    def sharee(self, ctx: RequestContext) -> str | None:
        """Return the key of the caller of such a request, None for any other."""
        if ctx.request is None or OWNER_SCOPE not in ctx.request.scope:
            return None
        sharee: str | None = ctx.request.scope.get(SHAREE_SCOPE)
        if sharee is not None:
            return sharee
        return _principal().key

    def pin(self, ctx: RequestContext) -> str | None:
        """Return the name of the pinned session: that of the URL, else of the connection, else of the server, else None."""
        if ctx.request is not None:
            scope = ctx.request.scope
            name = scope.get(PIN_SCOPE)
            if isinstance(name, str) or PRINCIPAL_SCOPE in scope:
                return name
        return ctx.lifespan_context.get(PIN_SCOPE, self._pinned_name)

    def naming(self, ctx: RequestContext) -> Naming:
        if self.pin(ctx) is not None:
            return "command" if COMMAND_SCOPE in ctx.lifespan_context else "pinned"
        auto = None if ctx.request is None else ctx.request.scope.get(AUTO_SCOPE)
        if auto is None:
            auto = self._auto_session and not is_modern(ctx)
        return "auto" if auto else "explicit"


def _principal() -> Principal:
    """Return the principal of the caller of this request; without a token, that of the user of the machine."""
    user = auth_context_var.get()
    return user.principal if isinstance(user, VerifiedCaller) else LOCAL


class CallParser:
    """Finds the tool and the session of each call of one gateway."""

    def __init__(self, gateway: Gateway, requester: Requester) -> None:
        self._gateway = gateway
        self._requester = requester
        self._auto_sessions = AutoSessions(gateway)

    async def parse(
        self, ctx: RequestContext, params: JSON, caller: Caller
    ) -> OwnCall | ServiceCall:
        """Find the tool and the session of a call.

        Raises:
            MCPError: there is no such tool, or the parameters are malformed.
            SessionError: the call names no session, or the tool may belong to a service that could not be probed.
        """
        name, raw_arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(raw_arguments, dict | None):
            raise MCPError(code=types.INVALID_PARAMS, message="Invalid request parameters")
        requester = self._requester
        principal, pin, naming = requester.principal(ctx), requester.pin(ctx), requester.naming(ctx)
        arguments = dict(cast("JSON", raw_arguments or {}))
        tool = self._gateway.tools.own_tool(name, naming)
        if tool is not None:
            is_unnamed = tool.takes_session and not arguments.get("session_id")
            if is_unnamed and naming == "auto":
                arguments["session_id"] = await self._auto_sessions.id_of(
                    connection_of(ctx), principal
                )
            pinned_id = (
                None if pin is None else await self._gateway.pinned_sessions.id_of(principal, pin)
            )
            namespace = self._gateway.config.namespace
            context = ToolContext(
                principal,
                namespace,
                pinned_id,
                run=caller.own_meta.run_id,
                caller=caller,
                groups=requester.groups(),
                is_shared=requester.is_shared(ctx),
            )
            return OwnCall(tool, context, arguments)
        reported_seconds = 0.0
        entry = self._gateway.tools.called_entry(name, naming)
        if entry is None:
            waiting = WaitProgress(caller)
            entry = await self._gateway.probes.entry(name, naming, waiting)
            reported_seconds = waiting.highest_progress
        if entry is None:
            self._check_held(name)
            reason = self._gateway.probes.missing_tool_reason(name)
            if reason is not None:
                message = f"There is no tool {name[:128]!r} now. {reason}"
                if (missing := self._gateway.probes.missing_login(name)) is not None:
                    raise LoginMissing(message, *missing)
                raise ServiceUnavailable(message)
            tools = self._gateway.tools.catalog(naming)
            hint = did_you_mean(name, [*tools.own_definitions, *tools.entries])
            absent = await self._absent_services(principal, pin or arguments.get(SESSION_ARGUMENT))
            message = f"Unknown tool: {name[:128]}.{hint}{absent}".rstrip(".")
            raise MCPError(code=types.INVALID_PARAMS, message=message)
        session = await self._take_session(ctx, principal, entry, arguments, pin)
        return ServiceCall(principal, session, entry, arguments, reported_seconds)

    def _check_held(self, name: str) -> None:
        """Refuse a tool whose definition has changed. Raises NotAllowed."""
        for service, tool in self._gateway.pins.held_tools():
            prefix = self._gateway.tools.prefix(service)
            if name in (listed_name(tool, prefix), listed_name(tool, own_prefix(service) + prefix)):
                self._gateway.pins.check(service, "tool", tool)

    async def _absent_services(self, principal: Principal, session: object) -> str:
        """Return a sentence about the services of a session that this server lacks; empty without any."""
        if not isinstance(session, str):
            return ""
        try:
            namespace = self._gateway.config.namespace
            info = await self._gateway.registry.info(principal, session, namespace)
            # A live session knows no binding to a service that its process lacks.
            bindings = await self._gateway.registry.core.store.bindings(info["session_id"])
        except (SessionError, StoreUnavailable):
            return ""
        configured = self._gateway.config.enabled_services()
        absent = [each.service for each in bindings if each.service not in configured]
        if not absent:
            return ""
        return (
            f" The session uses {', '.join(absent)}, which this server does not have: "
            "its tools need a server with the settings of the session"
        )

    async def _take_session(
        self,
        ctx: RequestContext,
        principal: Principal,
        entry: CatalogEntry,
        arguments: JSON,
        pin: str | None,
    ) -> str:
        """Return the session that a call names, and remove our argument for it from those of the call."""
        if pin is not None:
            return await self._gateway.pinned_sessions.id_of(principal, pin)
        session = arguments.pop(entry.session_argument, None)
        if session is None and entry.accepts_session_id:
            # The client has a list from before a tool of the service got an argument of this name.
            session = arguments.pop(SESSION_ARGUMENT, None)
        if isinstance(session, str) and session:
            return session
        if session is None and self._requester.naming(ctx) == "auto":
            return await self._auto_sessions.id_of(connection_of(ctx), principal)
        if session is not None and session != "":
            raise InvalidArgument(f"{entry.session_argument}: should be a string.")
        raise missing_session(entry.session_argument)
