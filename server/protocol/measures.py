"""The measurement of requests of clients: their durations and outcomes, and a line of the debug log for each call."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, cast

import anyio
from mcp.shared.exceptions import MCPError
from opentelemetry.trace import Span

from ...sessions.errors import SessionError
from ...sessions.metrics.instruments import OTHER, error_type
from ...sessions.metrics.spans import SPANS, end_as_error
from ..gateway.gateway import Gateway
from ..sdk.access import RequestContext
from ..sdk.caller import is_forwarded, is_modern
from .request_checks import Requester, named_session

logger = logging.getLogger("statehold.server")

_METHODS: Final = frozenset(
    {
        *("tools/call", "tools/list", "prompts/get", "prompts/list", "completion/complete"),
        *("resources/list", "resources/read", "resources/templates/list"),
        *("resources/subscribe", "resources/unsubscribe", "subscriptions/listen"),
        *("tasks/get", "tasks/update", "tasks/cancel", "logging/setLevel", "ping"),
        *("events/list", "events/poll", "events/subscribe", "events/unsubscribe"),
    }
)
"""The methods that are labels; a client may send any other."""
_RPC_CODES: Final = frozenset(
    (-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32021, -32042)
)
"""The JSON-RPC error codes that are labels; a service may answer with any other."""
_MISTAKES: Final = frozenset(("-32700", "-32600", "-32601", "-32602", "-32002"))
"""The codes that are no errors in the spans of a server, after the conventions of OpenTelemetry for MCP."""
MAX_NAME: Final = 128
"""Characters of a name that a client gives, in a span."""


class Measure:
    """The measurement of one request: the block of its `with`. `outcome` is set where it succeeded."""

    __slots__ = ("_began_at", "_block", "_ctx", "_measures", "_span", "outcome")

    def __init__(self, measures: Measures, ctx: RequestContext) -> None:
        self._measures = measures
        self._ctx = ctx
        self.outcome = "error"
        """The outcome as in the audit log."""

    def __enter__(self) -> Measure:
        self._began_at = time.monotonic()
        self._block = _span_of(self._ctx) if SPANS.is_on else None
        self._span = None if self._block is None else self._block.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        label = error_type(self.outcome) if error is None else _label_of(error)
        if self._block is not None and self._span is not None:
            if label in _MISTAKES:
                self._span.set_attribute("rpc.response.status_code", label)
            elif label:
                end_as_error(self._span, label)
            self._block.__exit__(None, None, None)
        self._measures.record(self._ctx, time.monotonic() - self._began_at, self.outcome, label)


def _span_of(ctx: RequestContext) -> AbstractContextManager[Span]:
    """Return the span of a request. The names of its tool and its session are those that the client gave."""
    params, scope = ctx.params or {}, {} if ctx.request is None else ctx.request.scope
    attributes: dict[str, str | int] = {
        "mcp.method.name": ctx.method,
        "mcp.protocol.version": ctx.protocol_version,
        "network.transport": "tcp" if scope.get("type") == "http" else "pipe",
    }
    if ctx.request_id is not None:
        attributes["jsonrpc.request.id"] = str(ctx.request_id)
    name, session = params.get("name"), named_session(params)
    kind = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}.get(ctx.method)
    if kind is None or not isinstance(name, str):
        name = ""
    else:
        attributes[kind] = name = name[:MAX_NAME]
    if ctx.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    if isinstance(session, str):
        attributes["statehold.session.id"] = session[:MAX_NAME]
    meta: object = params.get("_meta")
    headers: list[tuple[bytes, bytes]] = scope.get("headers") or []
    carriers = (
        cast("Mapping[str, Any]", meta) if isinstance(meta, dict) else {},
        {
            k.decode(): v.decode("latin-1")
            for k, v in headers
            if k in (b"traceparent", b"tracestate")
        },
    )
    return SPANS.request(f"{ctx.method} {name}".strip()[:MAX_NAME], carriers, attributes)


def _label_of(error: BaseException) -> str:
    if isinstance(error, MCPError):
        code = error.error.code
        return str(code) if code in _RPC_CODES else OTHER
    if isinstance(error, SessionError):
        return error_type(error.code)
    return "cancelled" if isinstance(error, anyio.get_cancelled_exc_class()) else OTHER


class Measures:
    """Measures the requests of one server. It lives as long as the server; tools that are not listed are no labels."""

    def __init__(self, gateway: Gateway, requester: Requester) -> None:
        self._metrics = gateway.registry.core.metrics
        self._tools = gateway.tools
        self._requester = requester

    def record(self, ctx: RequestContext, seconds: float, outcome: str, label: str) -> None:
        """Record the end of a request. The node of the client records one that was forwarded."""
        params = ctx.params or {}
        if not is_forwarded(ctx):
            method = ctx.method if ctx.method in _METHODS else OTHER
            is_http = ctx.request is not None and ctx.request.scope.get("type") == "http"
            self._metrics.requests.record(
                seconds,
                method,
                self._tool(ctx, params) if self._metrics.has_tools else "",
                label,
                "modern" if is_modern(ctx) else "legacy",
                "tcp" if is_http else "pipe",
            )
        if ctx.method == "tools/call" and logger.isEnabledFor(logging.DEBUG):
            # Quoted, since a caller may send any name.
            logger.debug(
                "call of %.130r in session %.130r: %s after %.3f s",
                params.get("name"),
                self._requester.pin(ctx) or named_session(params),
                outcome,
                seconds,
            )

    def _tool(self, ctx: RequestContext, params: Mapping[str, Any]) -> str:
        if ctx.method != "tools/call":
            return ""
        name: object = params.get("name")
        known = self._tools.catalog(self._requester.naming(ctx)).schemas
        return name if isinstance(name, str) and name in known else OTHER
