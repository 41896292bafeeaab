"""The requests of clients: their bodies, read once within a limit; and the parsing of those that may take the fast path."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, cast

from mcp_types import JSONRPCError, RequestParamsMeta
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...sessions.json_codec import JSON, loads
from ...tools.upstream.transports.pipe_requests import is_tracing
from ..asgi import replay_messages
from ..protocol.error_translation import invalid_request

VERSION: Final = b"mcp-protocol-version"
SESSION: Final = b"mcp-session-id"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
PARAM: Final = b"mcp-param-"

_ACCEPT_VALUES: Final = frozenset(
    (b"application/json, text/event-stream", b"text/event-stream, application/json")
)
_JSON_TYPES: Final = frozenset(
    (
        b"application/json",
        b"application/json; charset=utf-8",
        b"application/json;charset=utf-8",
    )
)
_READ_HEADERS: Final = frozenset(
    (VERSION, SESSION, METHOD, NAME, b"accept", b"content-type", b"content-length")
)
_TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")

Head = dict[bytes, bytes]
"""The headers of a POST. A request that has one twice that the fast path reads has no Head."""


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A POST whose headers the fast path understands, and the ASGI channels of its answer."""

    head: Head
    scope: Scope
    receive: Receive
    send: Send


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A `tools/call` request."""

    id: str | int
    params: JSON
    meta: JSON

    @property
    def progress_token(self) -> str | int | None:
        value = self.meta.get("progressToken")
        return value if isinstance(value, str | int) and not isinstance(value, bool) else None

    @property
    def typed_meta(self) -> RequestParamsMeta | None:
        return cast("RequestParamsMeta | None", self.params.get("_meta"))


def read_head(scope: Scope) -> Head | None:
    """Return the headers of a POST that may take the fast path, None for any other."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    head: Head = dict(headers)
    if len(head) < len(headers):
        names = [name for name, _ in headers if name in _READ_HEADERS or name.startswith(PARAM)]
        if len(set(names)) < len(names):
            return None
    length = head.get(b"content-length", b"")
    if not length.isdigit() or len(length) > 8 or int(length) > BODY_LIMIT:
        return None
    is_plain = head.get(b"accept") in _ACCEPT_VALUES and head.get(b"content-type") in _JSON_TYPES
    return head if is_plain else None


def parse_message(body: bytes) -> JSON | None:
    """Return the JSON-RPC message of a body, None if the body is not certainly one."""
    try:
        document: object = loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    message = cast("JSON", document)
    return message if message.get("jsonrpc") == "2.0" else None


def parse_call(message: JSON) -> ToolCall | None:
    """Return the tool call of a message, None if the message is not certainly one, or if the SDK has to trace it."""
    request_id, params = message.get("id"), message.get("params")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        return None
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    call_params = cast("JSON", params)
    arguments: object = call_params.get("arguments", {})
    if not isinstance(call_params.get("name"), str) or not isinstance(arguments, dict | None):
        return None
    meta: object = call_params.get("_meta", {})
    if not isinstance(meta, dict) or is_tracing() or any(key in meta for key in _TRACE_KEYS):
        return None
    return ToolCall(request_id, call_params, cast("JSON", meta))


BODY_LIMIT: Final = 4 * 2**20
"""The SDK's limit of a body. A larger request is passed to the SDK, which refuses it."""


async def read_body(receive: Receive) -> tuple[bytes | None, list[Message]]:
    """Return the body and its ASGI messages. The body is None if the client disconnected or sent more than BODY_LIMIT."""
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return None, messages
        size += len(message.get("body", b""))
        if size > BODY_LIMIT:
            return None, messages
        if not message.get("more_body", False):
            break
    if len(messages) == 1:
        return messages[0].get("body", b""), messages
    return b"".join(message.get("body", b"") for message in messages), messages


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
        body, messages = await read_body(receive)
        refusal = None if body is None else _refusal(body)
        if refusal is not None:
            answer = refusal.model_dump(mode="json", by_alias=True, exclude_unset=True)
            await JSONResponse(answer, status_code=400)(scope, receive, send)
            return
        if body is not None or messages[-1]["type"] != "http.disconnect":
            await self._app(scope, replay_messages(messages, receive), send)


def _refusal(body: bytes) -> JSONRPCError | None:
    try:
        return invalid_request(json.loads(body))
    except (ValueError, RecursionError):
        return None
