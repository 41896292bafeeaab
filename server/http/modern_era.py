"""The fast path of 2026-07-28: recognises requests that are certainly plain tool calls.

The checks are the SDK's own functions, in the SDK's order.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, cast

import orjson
from mcp.shared.inbound import (
    InboundModernRoute,
    classify_inbound_request,
    validate_mcp_param_headers,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...sessions.json_codec import JSON
from ..protocol.server import StateholdServer
from ..sdk.access import request_connection
from .fast_request import METHOD, NAME, PARAM, VERSION, Head, PlainRequest, parse_call
from .response import CallResponse

_VERSIONS: Final = frozenset(version.encode() for version in MODERN_PROTOCOL_VERSIONS)


class ModernEra:
    """Recognises the calls of 2026-07-28. It keeps no state between requests."""

    def __init__(self, server: StateholdServer) -> None:
        self._server = server

    def matches(self, head: Head) -> bool:
        """Whether the headers are those of a tool call."""
        return head.get(VERSION) in _VERSIONS and head.get(METHOD) == b"tools/call" and NAME in head

    def in_flight(self) -> AbstractContextManager[None]:
        """Do nothing: there is no transport session that could end as idle."""
        return nullcontext()

    def accept(self, request: PlainRequest, message: JSON) -> CallResponse | None:
        """Return the response of a request, None if the request is not certainly a call."""
        call = parse_call(message)
        if call is None:
            return None
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.head.items()
            if name in (VERSION, METHOD, NAME) or name.startswith(PARAM)
        }
        route = classify_inbound_request(message, headers=headers)
        if not isinstance(route, InboundModernRoute) or not self._agrees(call.params, headers):
            return None
        # The client's name is not validated: no code uses it, and that would cost more than all the other checks.
        try:
            capabilities = orjson.dumps(route.client_capabilities)
        except TypeError:
            return None
        connection = request_connection(route.protocol_version, capabilities)
        return CallResponse(request, call, connection)

    def _agrees(self, params: JSON, headers: dict[str, str]) -> bool:
        """Whether the tool is known and the `Mcp-Param-*` headers agree with its arguments."""
        catalog = self._server.catalog
        name: str = params["name"]
        schema = catalog.schema(name)
        if schema is None:
            return False
        if name not in catalog.with_headers:
            return True
        arguments = cast("JSON", params.get("arguments") or {})
        return validate_mcp_param_headers(schema, arguments, headers) is None


__all__ = ["ModernEra"]
