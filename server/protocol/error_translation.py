"""The errors that a client of MCP gets: of sessions and upstreams, and of malformed requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ...sessions.errors import NodeUnavailable, OwnedByAnotherNode, SessionError, StoreUnavailable
from ...tools.upstream.errors import UpstreamRefused
from ..sdk.access import RequestContext
from .results import store_down

logger = logging.getLogger("statehold.server")


def invalid_request(message_json: object) -> types.JSONRPCError | None:
    """Return the error for a batch or for a request whose id is neither a string nor an integer, None for other JSON."""
    if isinstance(message_json, list):
        message = "Invalid Request: batches are not supported; send one message at a time"
    elif isinstance(message_json, dict) and "method" in message_json and "id" in message_json:
        request_id = cast("dict[str, Any]", message_json)["id"]
        if isinstance(request_id, str | int) and not isinstance(request_id, bool):
            return None
        message = "Invalid Request: the id of a request is a string or an integer"
    else:
        return None
    # JSON-RPC 2.0, section 5: null where there is no valid id.
    error = types.ErrorData(code=types.INVALID_REQUEST, message=message)
    return types.JSONRPCError(jsonrpc="2.0", id=None, error=error)


def refusal(line: bytes, error: ValidationError) -> types.JSONRPCError | None:
    """Return the error for a line that is no valid message; None for a blank line, a notification or a response."""
    if not line.strip():
        return None
    first = error.errors(include_url=False, include_input=False)[0]
    try:
        # Python parses lines that pydantic does not, such as those with half a surrogate pair.
        document: Any = json.loads(line.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        # JSON-RPC 2.0, section 5: null where the id cannot be detected.
        data = types.ErrorData(code=types.PARSE_ERROR, message=f"Parse error: {first['msg']}")
        return types.JSONRPCError(jsonrpc="2.0", id=None, error=data)
    invalid = invalid_request(document)
    if invalid is not None:
        return invalid
    if not isinstance(document, dict) or "method" not in document:
        return None
    request_id = cast("dict[str, Any]", document).get("id")
    if request_id is None:
        return None
    # Not the errors of the fields, which quote the input.
    if first["type"] == "json_invalid":
        data = types.ErrorData(code=types.PARSE_ERROR, message=f"Parse error: {first['msg']}")
    else:
        data = types.ErrorData(code=types.INVALID_REQUEST, message="Invalid Request")
    # Not validated, so that the id is returned unchanged.
    return types.JSONRPCError.model_construct(jsonrpc="2.0", id=request_id, error=data)


@contextmanager
def translate_errors(*, but: tuple[type[Exception], ...] = ()) -> Generator[None]:
    """Raise errors of sessions as JSON-RPC errors, for requests whose results have no `isError`; not those of `but`.

    Raises:
        OwnedByAnotherNode, NodeUnavailable: as the block did: another node may serve the request.
        MCPError: the block raised SessionError, UpstreamRefused or StoreUnavailable.
    """
    try:
        yield
    except but:
        raise
    except (OwnedByAnotherNode, NodeUnavailable):
        raise
    except UpstreamRefused as error:
        raise MCPError(code=error.rpc_code, message=error.message, data=error.data) from None
    except SessionError as error:
        raise as_mcp_error(error) from None
    except StoreUnavailable as error:
        logger.error("%s", error)
        raise as_mcp_error(store_down()) from None


def as_mcp_error(error: SessionError) -> MCPError:
    """Return the JSON-RPC error for an error of a session."""
    return MCPError(
        code=types.INVALID_PARAMS,
        message=f"{error.code}: {error.message} {error.recovery}",
        data=error.details(),
    )


async def hide_internal_error(call_next: CallNext, ctx: RequestContext) -> HandlerResult:
    """Answer a request. The text of an internal error is logged, not sent; the SDK would send it to a legacy client."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError, OwnedByAnotherNode, NodeUnavailable):
        raise
    except Exception:
        logger.exception("%.100s failed", ctx.method)
        raise MCPError(code=types.INTERNAL_ERROR, message="Internal error") from None
