"""The few places where the MCP SDK has no public way in. Each is checked by a test for the SDK that is locked."""

from __future__ import annotations

from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared._context_streams import create_context_streams
from mcp.shared.dispatcher import Outbound
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

RequestContext = ServerRequestContext[Any, Any]


def connection_of(ctx: RequestContext) -> Connection:
    """The connection a request came over: per request in 2026-07-28, per transport session before."""
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


def channel_of(ctx: RequestContext) -> Outbound:
    """The channel that belongs to a request: its own response stream on HTTP."""
    return ctx.session._request_outbound  # pyright: ignore[reportPrivateUsage]


def is_modern(ctx: RequestContext) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


__all__ = [
    "RequestContext",
    "channel_of",
    "connection_of",
    "create_context_streams",
    "is_modern",
]
