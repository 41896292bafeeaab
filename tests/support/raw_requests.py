"""Requests of any method, with their results as they came."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp import Client
from pydantic import ConfigDict

from .gateway_process import JSON


class Raw(types.Result):
    """A result with all its members."""

    model_config = ConfigDict(extra="allow")


async def send(client: Client, method: str, **params: Any) -> JSON:
    """Send a request and return its result. Raises MCPError."""
    request = types.Request[JSON, str](method=method, params=params)
    result = await client.session.send_request(request, Raw)
    return result.model_dump(by_alias=True, mode="json", exclude_unset=True)


__all__ = ["send"]
