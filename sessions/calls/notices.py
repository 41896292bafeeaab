"""Notes about replaced connections in results, placed so that every client shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ..attribution import NOTICE_MEMBER
from ..json_codec import JSON
from ..services import CallResult, ToolSpec

NOTICE_META: Final = "statehold/notice"
"""Repeats the block that is our note, so that a client can tell it from the tool's own text."""

STRUCTURED_ONLY: Final = frozenset(
    {
        "claude-code",
        "codex-mcp-client",
        "cursor-vscode",
        "opencode",
        "Visual Studio Code",
        "Visual Studio Code - Insiders",
    }
)
"""The clients that show their model structured content alone where a result has it, by their name in the handshake."""

_OPEN: Final = frozenset(
    {"$schema", "$id", "$defs", "$comment", "definitions", "type", "title", "description"}
    | {"properties", "required", "additionalProperties", "default", "examples", "minProperties"}
)
"""Keywords at the root of a schema that leave it open for one more member."""


def shows_content(client: str | None) -> bool:
    """Return whether a client, by its name in the handshake, shows content also where a result has structured content."""
    return client not in STRUCTURED_ONLY


def accepts_notice(spec: ToolSpec | None) -> bool:
    """Return whether a tool's output schema allows a member of ours in its structured content."""
    output_schema: object = None if spec is None else spec.definition.get("outputSchema")
    if output_schema is None:
        return True
    if not isinstance(output_schema, dict):
        return False
    schema = cast("Mapping[str, Any]", output_schema)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    return (
        schema.get("type", "object") == "object"
        and schema.keys() <= _OPEN
        and schema.get("additionalProperties", True) in (True, {})
        and NOTICE_MEMBER not in properties
    )


def with_notice(result: CallResult) -> JSON:
    """Return the payload of a result for its receipt: with its notice, and with nothing else under that name."""
    payload = result.payload
    meta: object = payload.get("_meta")
    fields = cast("JSON", meta) if isinstance(meta, dict) else {}
    if result.notice is not None:
        return {**payload, "_meta": {**fields, NOTICE_META: result.notice}}
    if NOTICE_META not in fields:
        return payload
    return {**payload, "_meta": {key: fields[key] for key in fields if key != NOTICE_META}}


def without_notice(payload: JSON) -> CallResult:
    """Return the result that a receipt keeps, with its notice separated."""
    meta: object = payload.get("_meta")
    notice: object = cast("JSON", meta).get(NOTICE_META) if isinstance(meta, dict) else None
    if not isinstance(notice, str):
        return CallResult(payload)
    rest = {key: value for key, value in cast("JSON", meta).items() if key != NOTICE_META}
    plain = {key: value for key, value in payload.items() if key != "_meta"}
    return CallResult({**plain, "_meta": rest} if rest else plain, notice=notice)


__all__ = [
    "NOTICE_MEMBER",
    "NOTICE_META",
    "accepts_notice",
    "shows_content",
    "with_notice",
    "without_notice",
]
