"""The fast path of 2026-07-28: requests that are certainly plain tool calls.

The SDK's own functions check them, in the SDK's order.
"""

from __future__ import annotations

from typing import Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.shared.inbound import (
    InboundModernRoute,
    classify_inbound_request,
    validate_mcp_param_headers,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import Receive, Scope, Send

from ...sessions.json_codec import JSON
from ..protocol.server import StateholdServer
from ..sdk.access import RequestContext
from .fast_request import (
    METHOD,
    NAME,
    PARAM,
    VERSION,
    Head,
    call_of,
    context_of,
    message_of,
    token_of,
    traced,
)
from .response import CallResponse

_VERSIONS: Final = frozenset(version.encode() for version in MODERN_PROTOCOL_VERSIONS)


class ModernFastPath:
    """Recognises the calls of 2026-07-28. It keeps no state between requests."""

    def __init__(self, face: StateholdServer) -> None:
        self._face = face

    def speaks(self, head: Head) -> bool:
        """Whether the headers are those of a tool call."""
        return head.get(VERSION) in _VERSIONS and head.get(METHOD) == b"tools/call" and NAME in head

    def call(
        self, head: Head, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> tuple[CallResponse, RequestContext] | None:
        """Return the call of a request, None when it is not certain to be one."""
        message = message_of(body)
        found = None if message is None else call_of(message)
        if message is None or found is None:
            return None
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in head.items()
            if name in (VERSION, METHOD, NAME) or name.startswith(PARAM)
        }
        route = classify_inbound_request(message, headers=headers)
        if not isinstance(route, InboundModernRoute):
            return None
        number, params = found
        meta = params["_meta"]
        if traced(meta) or not self._headers_agree(params, headers):
            return None
        exchange = CallResponse(
            receive,
            send,
            request_id=number,
            progress_token=token_of(meta),
            began=anyio.current_time(),
        )
        # Without the client's name, which no code here uses: checking it costs more than the rest of this.
        connection = Connection.from_envelope(
            route.protocol_version, None, route.client_capabilities
        )
        return exchange, context_of(exchange, connection, params, scope)

    def _headers_agree(self, params: JSON, headers: dict[str, str]) -> bool:
        """Whether the tool is known and the `Mcp-Param-*` headers agree with its arguments."""
        catalog = self._face.catalog
        name: str = params["name"]
        schema = catalog.schema(name)
        if schema is None:
            return False
        if name not in catalog.with_headers:
            return True
        arguments = cast("JSON", params.get("arguments") or {})
        return validate_mcp_param_headers(schema, arguments, headers) is None


__all__ = ["ModernFastPath"]
