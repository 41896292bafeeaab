"""Whether a call may be sent again. Imports little, for quick commands."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def may_repeat(tool: Mapping[str, Any], *, has_operation_id: bool = False) -> bool:
    """Return whether a call that was lost and may have run may be sent again: the one place that decides it, whoever asks.

    `tool` is the JSON of an MCP `Tool`, which declares that it runs twice without harm by `readOnlyHint` or
    `idempotentHint`. A call with an operation id is repeated by its caller alone, since the answer comes from its receipt. A
    call that did not run, as its error says, may always be sent again.
    """
    if has_operation_id:
        return False
    return has_hint(tool, "readOnlyHint") or has_hint(tool, "idempotentHint")


def has_hint(tool: Mapping[str, Any], name: str) -> bool:
    """Whether a tool declares an annotation."""
    hints = tool.get("annotations")
    return isinstance(hints, dict) and hints.get(name) is True  # pyright: ignore[reportUnknownMemberType]
