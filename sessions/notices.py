"""Where a result can carry a note about a replaced connection so that every client shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from .services import ToolSpec

NOTICE_MEMBER: Final = "statehold_notice"
"""The member of structured content that repeats the note, for clients that show structured content only."""

_OPEN: Final = frozenset(
    {"$schema", "$id", "$defs", "$comment", "definitions", "type", "title", "description"}
    | {"properties", "required", "additionalProperties", "default", "examples", "minProperties"}
)
"""Keywords at the root of a schema that leave it open for one more member."""


def accepts_notice(spec: ToolSpec | None) -> bool:
    """Return whether the structured content of a tool may have a member of ours: its output schema does not forbid it."""
    found: object = None if spec is None else spec.definition.get("outputSchema")
    if found is None:
        return True
    if not isinstance(found, dict):
        return False
    schema = cast("Mapping[str, Any]", found)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    return (
        schema.get("type", "object") == "object"
        and schema.keys() <= _OPEN
        and schema.get("additionalProperties", True) in (True, {})
        and NOTICE_MEMBER not in properties
    )


__all__ = ["NOTICE_MEMBER", "accepts_notice"]
