"""Answers to lines that are no messages: whoever sent a request gets one, whatever else is wrong with its line."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

import mcp_types as types
from pydantic import ValidationError

# Nothing here is ever tried twice, so that a line takes no longer than its length. A string without an end takes the rest.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+'
_TOKEN: Final = re.compile(
    rf'({_STRING})(\s*+:\s*+({_STRING}|[^\s"\[\]{{}}:,]++)?+)?+|[\[{{]++|[\]}}]++', re.DOTALL
)


_UNREADABLE: Final = object()


def refusal(line: bytes, error: ValidationError) -> types.JSONRPCError | None:
    """Return the answer to a line that is no message, None when it is no request: nobody waits for one then."""
    text = line.decode(errors="replace")
    try:
        # Python reads what pydantic does not, half a surrogate pair above all.
        found: Any = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        found = _members(text)
    if not isinstance(found, dict) or "method" not in found:
        return None
    number = cast("dict[str, Any]", found).get("id")
    if number is _UNREADABLE:
        # JSON-RPC 2.0, section 5: null where the id cannot be detected.
        number = None
    elif not isinstance(number, str | int) or isinstance(number, bool):
        return None
    # Not the errors of the fields, which hold what came.
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        told = types.ErrorData(code=types.PARSE_ERROR, message=f"Parse error: {first['msg']}")
    else:
        told = types.ErrorData(code=types.INVALID_REQUEST, message="Invalid Request")
    # Not validated: the id goes back as it came.
    return types.JSONRPCError.model_construct(jsonrpc="2.0", id=number, error=told)


def _members(text: str) -> dict[str, object]:
    """Return the members of an object, None for an object or array; nothing when it has no end.

    No parser is asked, because what one refuses need not be near them: Python's has a limit of 4,300 digits and of about
    1,000 levels, and wants all of it to be JSON.
    """
    # Windows PowerShell begins what it pipes with a byte order mark.
    text = text.lstrip("\ufeff \t\r\n")
    found: dict[str, object] = {}
    depth = 0
    if not text.startswith("{"):
        return found
    for token in _TOKEN.finditer(text):
        key, colon, value = token.groups()
        if key is None:
            run = token[0]
            depth += len(run) if run[0] in "[{" else -len(run)
        elif depth == 1 and colon:
            found[str(_scalar(key))] = _scalar(value)
    return found if depth == 0 else {}


def _scalar(written: str | None) -> object:
    try:
        return None if written is None else json.loads(written, strict=False)
    except ValueError:
        return _UNREADABLE


__all__ = ["refusal"]
