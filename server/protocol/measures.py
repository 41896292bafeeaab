"""The measurement of requests of clients: a duration, a span, and a line of the debug log for each call."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Final, cast

import anyio
from mcp.shared.exceptions import MCPError

from ...access.audit.recorder import OpenRequest
from ...access.scopes import METHOD_SCOPES
from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.metrics.instruments import OTHER, error_type
from ...sessions.metrics.spans import SPANS, Span
from ..gateway.gateway import Gateway
from ..sdk.access import RequestContext
from ..sdk.caller import is_forwarded, is_modern
from .request_checks import Requester, named_session

logger = logging.getLogger("statehold.server")

_RPC_CODES: Final = frozenset(
    (-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32021, -32042)
)
"""The JSON-RPC error codes that are labels; a service may answer with any other."""
_MISTAKES: Final = frozenset(("-32700", "-32600", "-32601", "-32602", "-32002"))
"""The codes that are no errors in the spans of a server, after the conventions of OpenTelemetry for MCP."""
_NAMES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
MAX_NAME: Final = 128
"""Characters of a name that a client gives, in a span."""


class Measure:
    """One request of a client: the block of its `with`. `outcome`, as in the audit log, is set where it succeeds."""

    __slots__ = ("_began_at", "_ctx", "_gateway", "_requester", "_span", "outcome", "record")

    def __init__(self, gateway: Gateway, requester: Requester, ctx: RequestContext) -> None:
        self._gateway = gateway
        self._requester = requester
        self._ctx = ctx
        self.outcome = "error"
        self.record: OpenRequest | None = None
        """Its record in the audit log, if there is one."""

    def __enter__(self) -> Measure:
        self._began_at = time.monotonic()
        self._span = None if SPANS.exporter is None else _begin_span(self._ctx)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ctx, seconds = self._ctx, time.monotonic() - self._began_at
        label = error_type(self.outcome) if error is None else _label_of(error)
        if self.record is not None:
            self.record.end(self.outcome)
        if not is_forwarded(ctx):  # the node of the client measures it
            metrics = self._gateway.registry.core.metrics
            metrics.requests.record(
                seconds,
                ctx.method if ctx.method in METHOD_SCOPES else OTHER,
                self._tool() if metrics.has_tools else "",
                label,
                "modern" if is_modern(ctx) else "legacy",
                _transport_of(ctx),
            )
        if ctx.method == "tools/call" and logger.isEnabledFor(logging.DEBUG):
            # Quoted, since a caller may send any name.
            logger.debug(
                "call of %.130r in session %.130r: %s after %.3f s",
                _name_in(ctx),
                self._requester.pin(ctx) or named_session(ctx.params or {}),
                self.outcome,
                seconds,
            )
        if self._span is not None:
            error_label = "" if label in _MISTAKES else label
            self._span.end(error_label, partial(_describe, ctx, label))

    def _tool(self) -> str:
        """Return the label of the tool of a call. A tool that is not listed is none."""
        name = _name_in(self._ctx)
        known = self._gateway.tools.catalog(self._requester.naming(self._ctx)).schemas
        return name if name in known else OTHER if self._ctx.method == "tools/call" else ""


def _begin_span(ctx: RequestContext) -> Span | None:
    meta: object = (ctx.params or {}).get("_meta")
    carrier: Mapping[str, object] = cast("JSON", meta) if isinstance(meta, dict) else {}
    if "traceparent" not in carrier and ctx.request is not None:
        pairs: Iterable[tuple[bytes, bytes]] = ctx.request.scope.get("headers") or ()
        headers = dict(pairs)
        if b"traceparent" in headers:
            keys = ("traceparent", "tracestate")
            carrier = {key: headers.get(key.encode(), b"").decode("latin-1") for key in keys}
    return SPANS.request(f"{ctx.method[:MAX_NAME]} {_name_in(ctx)}".strip(), carrier)


def _describe(ctx: RequestContext, label: str) -> dict[str, str]:
    """Return the attributes of the span of a request. The names of its tool and session are those that the client gave."""
    attributes = {
        "mcp.method.name": ctx.method[:MAX_NAME],
        "mcp.protocol.version": ctx.protocol_version,
        "network.transport": _transport_of(ctx),
        "jsonrpc.request.id": str(ctx.request_id)[:MAX_NAME],
    }
    if ctx.method in _NAMES:
        attributes[_NAMES[ctx.method]] = _name_in(ctx)
    if ctx.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    if isinstance(session := named_session(ctx.params or {}), str):
        attributes["statehold.session.id"] = session[:MAX_NAME]
    if label.startswith("-"):
        attributes["rpc.response.status_code"] = label
    return attributes


def _name_in(ctx: RequestContext) -> str:
    """Return the name of a tool or prompt in a request, empty without one."""
    name: object = (ctx.params or {}).get("name") if ctx.method in _NAMES else None
    return name[:MAX_NAME] if isinstance(name, str) else ""


def _transport_of(ctx: RequestContext) -> str:
    return "tcp" if ctx.request is not None and ctx.request.scope.get("type") == "http" else "pipe"


def _label_of(error: BaseException) -> str:
    if isinstance(error, MCPError):
        return str(error.error.code) if error.error.code in _RPC_CODES else OTHER
    if isinstance(error, SessionError):
        return error_type(error.code)
    return "cancelled" if isinstance(error, anyio.get_cancelled_exc_class()) else OTHER
