"""The parts that both eras of the fast path share: the head, the body and the context of a request that may take it."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final, cast

from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp_types import JSONRPCError, RequestParamsMeta
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...sessions.json_codec import JSON
from ..protocol.refusals import invalid_request
from ..sdk.access import RequestContext
from .response import CallResponse

BODY_LIMIT: Final = 4 * 2**20
"""The SDK's limit of a body; the SDK answers larger requests."""

VERSION: Final = b"mcp-protocol-version"
SESSION: Final = b"mcp-session-id"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
PARAM: Final = b"mcp-param-"

_ACCEPTED: Final = frozenset(
    (b"application/json, text/event-stream", b"text/event-stream, application/json")
)
_JSON: Final = frozenset(
    (
        b"application/json",
        b"application/json; charset=utf-8",
        b"application/json;charset=utf-8",
    )
)
_READ: Final = frozenset(
    (VERSION, SESSION, METHOD, NAME, b"accept", b"content-type", b"content-length")
)
_TRACE: Final = ("traceparent", "tracestate", "baggage")

Head = dict[bytes, bytes]
"""The headers of a POST that the fast path reads, each of which was there once."""


def head_of(scope: Scope) -> Head | None:
    """Return the headers of a request that may take the fast path, else None."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    found: Head = {}
    for name, value in scope["headers"]:
        if name in _READ or name.startswith(PARAM):
            if name in found:
                return None
            found[name] = value
    length = found.get(b"content-length", b"")
    if not length.isdigit() or len(length) > 8 or int(length) > BODY_LIMIT:
        return None
    plain = found.get(b"accept") in _ACCEPTED and found.get(b"content-type") in _JSON
    return found if plain else None


async def read(receive: Receive) -> tuple[bytes | None, list[Message]]:
    """Return the body and its ASGI messages; the body is None when the client left or sends too much."""
    found: list[Message] = []
    size = 0
    while True:
        message = await receive()
        found.append(message)
        if message["type"] != "http.request":
            return None, found
        size += len(message.get("body", b""))
        if size > BODY_LIMIT:
            return None, found
        if not message.get("more_body", False):
            break
    if len(found) == 1:
        return found[0].get("body", b""), found
    return b"".join(message.get("body", b"") for message in found), found


class WholeBody:
    """Reads the body of a POST before it calls `app`, which would treat a client that leaves meanwhile as an error.

    It refuses a request whose id is null or a fraction, which the SDK would take for a notification, and a batch.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, found = await read(receive)
        refused = None if body is None else _refusal(body)
        if refused is not None:
            answer = refused.model_dump(mode="json", by_alias=True, exclude_unset=True)
            await JSONResponse(answer, status_code=400)(scope, receive, send)
            return
        if body is not None or found[-1]["type"] != "http.disconnect":
            await self._app(scope, again(found, receive), send)


def _refusal(body: bytes) -> JSONRPCError | None:
    try:
        return invalid_request(json.loads(body))
    except (ValueError, RecursionError):
        return None


def again(found: list[Message], receive: Receive) -> Receive:
    """Return a `receive` that first returns the messages that were read already."""
    left = deque(found)

    async def replay() -> Message:
        return left.popleft() if left else await receive()

    return replay


def message_of(body: bytes) -> JSON | None:
    """Return the JSON-RPC message of a body, None when it is not certain to be one."""
    try:
        # Not orjson, which would turn an integer beyond 64 bits into a float.
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    message = cast("JSON", found)
    return message if message.get("jsonrpc") == "2.0" else None


def call_of(message: JSON) -> tuple[str | int, JSON] | None:
    """Return id and parameters of a request that names a tool, None when that is not certain."""
    number, params = message.get("id"), message.get("params")
    if isinstance(number, bool) or not isinstance(number, str | int):
        return None
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    known = cast("JSON", params)
    arguments: object = known.get("arguments", {})
    if not isinstance(known.get("name"), str) or not isinstance(arguments, dict | None):
        return None
    return number, known


def traced(meta: JSON) -> bool:
    """Whether the SDK has to handle a call because it makes a trace span for it."""
    return any(key in meta for key in _TRACE) or not isinstance(
        get_tracer_provider(), ProxyTracerProvider
    )


def token_of(meta: JSON) -> str | int | None:
    """Return the caller's progress token."""
    value = meta.get("progressToken")
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def context_of(
    exchange: CallResponse, connection: Connection, params: JSON, scope: Scope
) -> RequestContext:
    """Return the context that the SDK would pass to a handler."""
    meta = cast("RequestParamsMeta | None", params.get("_meta"))
    context: RequestContext = RequestContext(
        session=ServerSession(exchange, connection, request_meta=meta),
        lifespan_context=cast("Any", {}),
        protocol_version=connection.protocol_version,
        method="tools/call",
        params=params,
        request_id=exchange.request_id,
        meta=meta,
        request=Request(scope),
    )
    return context


__all__ = [
    "BODY_LIMIT",
    "METHOD",
    "NAME",
    "PARAM",
    "SESSION",
    "VERSION",
    "Head",
    "WholeBody",
    "again",
    "call_of",
    "context_of",
    "head_of",
    "message_of",
    "read",
    "token_of",
    "traced",
]
