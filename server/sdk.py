"""The few places where the MCP SDK has no public way in. Each is checked by a test for the SDK that is locked."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
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


def open_transport(
    manager: StreamableHTTPSessionManager, session_id: str, user: object
) -> StreamableHTTPServerTransport | None:
    """Return the transport of a session that a request of `user` may use, None when the manager has to refuse it."""
    transport = manager._server_instances.get(session_id)  # pyright: ignore[reportPrivateUsage]
    if transport is None or transport.is_terminated:
        return None
    owner = manager._session_owners.get(session_id)  # pyright: ignore[reportPrivateUsage]
    requestor = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
    idle = transport.idle_scope
    if requestor != owner or (idle is not None and idle.cancel_called):
        return None
    return transport


@contextmanager
def in_flight(transport: StreamableHTTPServerTransport) -> Generator[None]:
    """Count a request as the transport counts its own, so that its session is not ended as idle meanwhile."""
    idle = transport.idle_scope
    seconds = transport._idle_timeout  # pyright: ignore[reportPrivateUsage]
    if idle is None or seconds is None:
        yield
        return
    transport._requests_in_flight += 1  # pyright: ignore[reportPrivateUsage]
    idle.deadline = math.inf
    try:
        yield
    finally:
        transport._requests_in_flight -= 1  # pyright: ignore[reportPrivateUsage]
        if not transport._requests_in_flight:  # pyright: ignore[reportPrivateUsage]
            idle.deadline = anyio.current_time() + seconds


__all__ = [
    "RequestContext",
    "channel_of",
    "connection_of",
    "create_context_streams",
    "in_flight",
    "is_modern",
    "open_transport",
]
