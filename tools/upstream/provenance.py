"""Keeps the messages of an upstream distinguishable from our own: `_meta` keys, notes, and questions to the user."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final, cast

from ...sessions.attribution import attribute_text, attribute_value
from ...sessions.errors import RequestRefused
from ...sessions.json_codec import JSON

OUR_META: Final = "statehold/"
MAX_DEPTH: Final = 6
"""Levels of a result that are searched for `_meta`; content blocks, resources, messages and questions are within them."""

_DATA: Final = frozenset({"structuredContent", "inputSchema", "outputSchema", "requestedSchema"})
"""Members with data of the upstream, in which clients ignore a `_meta`."""
_SHOWN: Final = frozenset({"text", "name", "title", "description", "systemPrompt"})
"""Members of content blocks, resources and prompts that clients show."""
_DESCRIPTIONS: Final = frozenset({"title", "description"})
"""Those of things that are called by their names, and of schemas."""
_CONTAINERS: Final = (dict, list)
_NOT_SHOWN: Final = frozenset({"_meta", "structuredContent"})
"""Members without texts of content blocks; structured content is attributed as a whole."""
_NAMED: Final = frozenset({"tools", "prompts", "arguments"}) | _DATA


def strip_our_meta(result: Any) -> None:
    """Remove the `statehold/` keys, which only we may set, from each `_meta` of a result or of params, in place."""
    containers: list[tuple[Any, int]] = [(result, MAX_DEPTH)]
    for value, depth in containers:
        if isinstance(value, list):
            items = cast(list[Any], value)
            containers += [(cast(Any, item), depth) for item in items if isinstance(item, dict)]
            continue
        fields = cast(JSON, value)
        meta: object = fields.get("_meta")
        if isinstance(meta, dict):
            meta_fields = cast(JSON, meta)
            for key in [key for key in meta_fields if key.startswith(OUR_META)]:
                del meta_fields[key]
            if not meta_fields:
                del fields["_meta"]
        if depth:
            for name, child in fields.items():
                if isinstance(child, _CONTAINERS) and name not in _DATA and name != "_meta":
                    containers.append((cast(Any, child), depth - 1))


def attribute_notes(result: JSON, service: str) -> None:
    """Put the name of the service before each text of a result or question that begins like a note of ours, in place."""
    for place, name in _texts_of(result, _SHOWN, MAX_DEPTH):
        place[name] = attribute_text(place[name], service)
    if "structuredContent" in result:
        result["structuredContent"] = attribute_value(result["structuredContent"], service)


def _texts_of(fields: JSON, shown: Set[str], depth: int) -> list[tuple[JSON, str]]:
    """Return the objects and members of the texts that clients show, in their order."""
    places: list[tuple[JSON, str]] = []
    for name, child in fields.items():
        if isinstance(child, str):
            if name in shown:
                places.append((fields, name))
        elif depth and isinstance(child, _CONTAINERS) and name not in _NOT_SHOWN:
            inner = _DESCRIPTIONS if name in _NAMED else shown
            items = cast("list[object]", child if isinstance(child, list) else [child])
            for item in items:
                if isinstance(item, dict):
                    places += _texts_of(cast(JSON, item), inner, depth - 1)
    return places


def attribute_question(service: str, method: object, params: Any) -> None:
    """Begin the message of an elicitation with the name of the service that asks, in place.

    A text in a question that begins like a note of Statehold gets the name, too.
    """
    if not isinstance(params, dict):
        return
    fields = cast(JSON, params)
    attribute_notes(fields, service)
    if method == "elicitation/create":
        message: object = fields.get("message")
        question = message if isinstance(message, str) else ""
        fields["message"] = f"{service} asks: {question}".strip()


def attribute_refusal(error: RequestRefused, service: str) -> None:
    """Put the name of the service before the texts of its error that begin like a note of Statehold, in place."""
    error.message = attribute_text(error.message, service)
    error.data = attribute_value(error.data, service)


def attribute_report(service: str, params: JSON) -> None:
    """Put the name of the service before a text of a progress or log message that begins like a note, in place."""
    for name in ("message", "data"):
        if name in params:
            params[name] = attribute_value(params[name], service)
