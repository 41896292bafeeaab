"""The short way of a 2026-07-28 tool call over HTTP, in front of the SDK's application.

Most requests are plain tool calls, and most of the SDK's work for one of them is spent around the call. What is taken here
is checked by the SDK's own functions in the SDK's order; everything unusual, and every request that is to be refused, goes
on to the SDK with its body unread.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskGroup
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundModernRoute,
    classify_inbound_request,
    validate_mcp_param_headers,
)
from mcp_types import RequestParamsMeta
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..sessions.services import JSON
from .exchange import PING_SECONDS, Exchange
from .mcp import Face

logger = logging.getLogger("statehold.server")

BODY_LIMIT: Final = 4 * 2**20
"""The SDK's limit; it answers what is larger."""

ATTEND_SECONDS: Final = 0.05
"""How long a call may take before somebody watches whether its client is still there."""

_VERSIONS: Final = frozenset(version.encode() for version in MODERN_PROTOCOL_VERSIONS)
_ACCEPTED: Final = frozenset(
    (b"application/json, text/event-stream", b"text/event-stream, application/json")
)
_ROUTING: Final = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_TRACE: Final = ("traceparent", "tracestate", "baggage")


@dataclass(frozen=True, slots=True)
class _Call:
    """A request that is certainly a tool call, and certainly well-formed."""

    request_id: str | int
    params: JSON
    route: InboundModernRoute


class Direct:
    """Answers plain tool calls of 2026-07-28 clients itself and hands the rest to `app`. Lives while run() is open."""

    def __init__(self, app: ASGIApp, face: Face, *, ping_seconds: float = PING_SECONDS) -> None:
        self._app = app
        self._face = face
        self._ping_seconds = ping_seconds
        self._open: dict[Exchange, None] = {}
        self._some = anyio.Event()
        self.running = False

    @property
    def in_flight(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._patrol, tasks)
            self.running = True
            try:
                yield
            finally:
                self.running = False
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _plain(scope) if self.running else None
        if headers is None:
            await self._app(scope, receive, send)
            return
        body, read = await _read(receive)
        call = None if body is None else _recognised(body, headers)
        if call is None or not self._headers_agree(call, headers):
            await self._app(scope, _again(read, receive), send)
            return
        await self._serve(call, scope, receive, send)

    def _headers_agree(self, call: _Call, headers: Mapping[str, str]) -> bool:
        """Whether the tool is known and the `Mcp-Param-*` headers say what its arguments say."""
        catalog = self._face.catalog
        name: str = call.params["name"]
        arguments: object = call.params.get("arguments") or {}
        schema = catalog.schema(name)
        if schema is None or not isinstance(arguments, dict):
            return False
        if name not in catalog.with_headers:
            return True
        return validate_mcp_param_headers(schema, cast("JSON", arguments), headers) is None

    async def _serve(self, call: _Call, scope: Scope, receive: Receive, send: Send) -> None:
        meta = call.params["_meta"]
        exchange = Exchange(
            receive,
            send,
            request_id=call.request_id,
            progress_token=_token(meta.get("progressToken")),
            began=anyio.current_time(),
        )
        self._open[exchange] = None
        self._some.set()
        try:
            with exchange.scope:
                await self._answer(exchange, _context(call, scope, exchange))
        finally:
            del self._open[exchange]
            exchange.end()

    async def _answer(self, exchange: Exchange, context: ServerRequestContext[Any, Any]) -> None:
        try:
            result = await self._face.call(context)
        except MCPError as error:
            status = ERROR_CODE_HTTP_STATUS.get(error.code, 200)
            await exchange.answer(error.error, status)
        else:
            await exchange.answer(result, 200)

    async def _patrol(self, tasks: TaskGroup) -> None:
        """Attend to the calls that take longer; one that is over at once costs nothing here."""
        while True:
            await self._some.wait()
            await anyio.sleep(ATTEND_SECONDS)
            if not self._open:
                self._some = anyio.Event()
                continue
            latest = anyio.current_time() - ATTEND_SECONDS
            for exchange in list(self._open):
                if exchange.began <= latest and not exchange.attended:
                    exchange.attended = True
                    tasks.start_soon(self._attend, exchange)

    async def _attend(self, exchange: Exchange) -> None:
        try:
            await exchange.attend(self._ping_seconds)
        except Exception:
            logger.exception("nobody watches a call over HTTP any more")


def _plain(scope: Scope) -> dict[str, str] | None:
    """Return the MCP headers of a request that may take the short way, else None."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    found: dict[bytes, bytes] = {}
    more: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _ROUTING:
            if name in found:
                return None
            found[name] = value
        elif name == b"content-type":
            if not value.lower().startswith(b"application/json"):
                return None
            found[name] = value
        elif name == b"accept":
            if value not in _ACCEPTED:
                return None
            found[name] = value
        elif name == b"content-length":
            if not value.isdigit() or int(value) > BODY_LIMIT:
                return None
            found[name] = value
        elif name.startswith(b"mcp-param-"):
            if name in more:
                return None
            more[name] = value
    if len(found) != 6 or found[b"mcp-method"] != b"tools/call":
        return None
    if found[b"mcp-protocol-version"] not in _VERSIONS:
        return None
    return {
        **{name.decode("latin-1"): found[name].decode("latin-1") for name in _ROUTING},
        **{name.decode("latin-1"): value.decode("latin-1") for name, value in more.items()},
    }


async def _read(receive: Receive) -> tuple[bytes | None, list[Message]]:
    """Return the body, None when the client left or sends too much, and the messages it came in."""
    read: list[Message] = []
    size = 0
    while True:
        message = await receive()
        read.append(message)
        if message["type"] != "http.request":
            return None, read
        size += len(message.get("body", b""))
        if size > BODY_LIMIT:
            return None, read
        if not message.get("more_body", False):
            break
    if len(read) == 1:
        return read[0].get("body", b""), read
    return b"".join(message.get("body", b"") for message in read), read


def _again(read: list[Message], receive: Receive) -> Receive:
    left = deque(read)

    async def replay() -> Message:
        return left.popleft() if left else await receive()

    return replay


def _recognised(body: bytes, headers: dict[str, str]) -> _Call | None:
    """Return the call that a body is, None when that is not certain."""
    try:
        # Not orjson, which would turn an integer beyond 64 bits into a float.
        decoded: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(decoded, dict):
        return None
    request = cast("JSON", decoded)
    number, params = request.get("id"), request.get("params")
    if request.get("jsonrpc") != "2.0" or isinstance(number, bool):
        return None
    if not isinstance(number, str | int) or not isinstance(params, dict):
        return None
    route = classify_inbound_request(request, headers=headers)
    if not isinstance(route, InboundModernRoute):
        return None
    known = cast("JSON", params)
    if not isinstance(known.get("name"), str) or any(key in known["_meta"] for key in _TRACE):
        return None
    return _Call(number, known, route) if _untraced() else None


def _untraced() -> bool:
    """Whether nobody collects traces: the SDK makes the spans, so with a tracer it has to see every call."""
    return isinstance(get_tracer_provider(), ProxyTracerProvider)


def _token(value: object) -> str | int | None:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _context(call: _Call, scope: Scope, exchange: Exchange) -> ServerRequestContext[Any, Any]:
    route = call.route
    # Without the client's name, which nobody here asks for: checking it costs more than the rest of this.
    connection = Connection.from_envelope(route.protocol_version, None, route.client_capabilities)
    meta = cast("RequestParamsMeta", call.params["_meta"])
    return ServerRequestContext(
        session=ServerSession(exchange, connection, request_meta=meta),
        lifespan_context={},
        protocol_version=route.protocol_version,
        method="tools/call",
        params=call.params,
        request_id=exchange.request_id,
        meta=meta,
        request=Request(scope),
    )


__all__ = ["Direct"]
