"""Access to the few parts of the MCP SDK that have no public API. Tests run each against the pinned version of the SDK."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import Outbound

RequestContext = ServerRequestContext[Any, Any]


def outbound_of(ctx: RequestContext) -> Outbound:
    """Return the channel for messages about a request: over HTTP, the stream of its response."""
    return ctx.session._request_outbound  # pyright: ignore[reportPrivateUsage]


@lru_cache(maxsize=64)
def request_connection(version: str, capabilities: bytes) -> Connection:
    """Return the SDK's connection for 2026-07-28 requests over HTTP with these client capabilities, given as JSON.

    Requests with equal capabilities share it: it has no state of a client, and no channel besides each response.
    """
    return Connection.from_envelope(version, None, orjson.loads(capabilities))


__all__ = ["RequestContext", "outbound_of", "request_connection"]
