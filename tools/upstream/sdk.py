"""The private parts of the MCP SDK's client that Statehold uses.

tests/tools/upstream/test_sdk.py has a test for each.
"""

from __future__ import annotations

from mcp.client._transport import ReadStream, WriteStream
from mcp.shared._httpx_utils import (
    redirect_location,
    request_within_origin,
    sse_within_origin,
)

__all__ = [
    "ReadStream",
    "WriteStream",
    "redirect_location",
    "request_within_origin",
    "sse_within_origin",
]
