"""Keeps the messages of an upstream distinguishable from our own: `_meta` keys, notes, and questions to the user."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from ...sessions.json_codec import JSON

OUR_META: Final = "statehold/"
DEPTH: Final = 6
"""Levels of a result that are searched for `_meta`; content blocks, resources, messages and questions are within them."""

_DATA: Final = frozenset({"structuredContent", "inputSchema", "outputSchema", "requestedSchema"})
"""Members with data of the upstream, in which clients ignore a `_meta`."""
_NOTE: Final = re.compile(
    r"(?i)(\A|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])(?=[^\w\r\n]{0,20}note from statehold)"
)


def strip_our_meta(value: Any, depth: int = DEPTH) -> None:
    """Remove the `statehold/` keys, which only we may set, from each `_meta` of a result or of params, in place."""
    if isinstance(value, list):
        for item in cast(list[Any], value):
            if isinstance(item, dict):
                strip_our_meta(item, depth)
        return
    fields = cast(JSON, value)
    meta: object = fields.get("_meta")
    if isinstance(meta, dict):
        meta_fields = cast(JSON, meta)
        for key in [key for key in meta_fields if key.startswith(OUR_META)]:
            del meta_fields[key]
        if not meta_fields:
            del fields["_meta"]
    if depth == 0:
        return
    for name, child in fields.items():
        if isinstance(child, dict | list) and name not in _DATA and name != "_meta":
            strip_our_meta(child, depth - 1)


def attribute_notes(result: JSON, service: str) -> None:
    """Put the name of the service before each line of a text block that looks like a note of Statehold, in place."""
    for block in cast(list[JSON], result["content"]):
        text: object = block.get("text")
        if block["type"] == "text" and isinstance(text, str) and "tatehold" in text.lower():
            block["text"] = _NOTE.sub(rf"\g<1>[{_escape(service)}] ", text)


def attribute_question(service: str, method: object, params: Any) -> None:
    """Begin the message of an elicitation with the name of the service that asks, in place."""
    if method == "elicitation/create" and isinstance(params, dict):
        fields = cast(JSON, params)
        message: object = fields.get("message")
        fields["message"] = f"{service} asks: {message if isinstance(message, str) else ''}".strip()


def _escape(name: str) -> str:
    return name.replace("\\", r"\\")


__all__ = ["attribute_notes", "attribute_question", "strip_our_meta"]
