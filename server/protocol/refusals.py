"""JSON-RPC errors that answer invalid messages."""

from __future__ import annotations

import json
from typing import Any, cast

import mcp_types as types
from pydantic import ValidationError


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
