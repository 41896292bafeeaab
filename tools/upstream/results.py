"""Validation of tool results against the shape that the protocol demands.

For a 2026-07-28 client the SDK (2.3) turns a malformed result into an empty one, so results are checked before they are
passed on. Only the shape is checked; unknown fields pass unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_types import SERVER_INFO_META_KEY

from ...sessions.json_codec import JSON
from .errors import UpstreamMisbehaved, era_remedy
from .provenance import attribute_notes, attribute_question, strip_our_meta

REQUIRED_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}
"""The text fields that a content block of each type must have."""


def validate_result(result: JSON, *, modern: bool, service: str, tool: bool) -> JSON:
    """Return a result that can be passed on, or raise UpstreamMisbehaved. `tool`: it is a result of tools/call.

    A result of a legacy upstream has no `resultType`; a modern one's is `complete` or `input_required`.
    """
    kind = result.get("resultType", "complete")
    if not modern:
        if result.pop("resultType", None) == "input_required":
            fault = f"it asks for input by a newer revision; {era_remedy(service)}"
            raise UpstreamMisbehaved(service, fault)
    elif kind == "input_required":
        return _validate_question(result, service)
    elif kind != "complete":
        raise UpstreamMisbehaved(service, f"its result is of the unknown type {str(kind)[:40]!r}")
    _drop_server_info(result)
    strip_our_meta(result)
    if tool and (fault := _find_fault(result)) is not None:
        raise UpstreamMisbehaved(service, f"its result is not a tool result ({fault})")
    attribute_notes(result, service)
    return result


def _validate_question(result: JSON, service: str) -> JSON:
    value, state = result.get("inputRequests"), result.get("requestState")
    requests = cast(JSON, value) if isinstance(value, dict) else {}
    is_valid = all(isinstance(_get(request, "method"), str) for request in requests.values())
    if not is_valid or not (requests or isinstance(state, str)):
        raise UpstreamMisbehaved(service, "it asks for input without a question")
    _drop_server_info(result)
    strip_our_meta(result)
    for request in requests.values():
        attribute_question(service, request["method"], request.get("params"))
    return result


def _drop_server_info(result: JSON) -> None:
    """Remove the upstream's `serverInfo`, which ours replaces, and a `_meta` that is not an object."""
    meta = result.get("_meta")
    if not isinstance(meta, dict):
        result.pop("_meta", None)
    elif SERVER_INFO_META_KEY in meta:
        fields = cast(JSON, meta)
        del fields[SERVER_INFO_META_KEY]
        if not fields:
            del result["_meta"]


def _find_fault(result: JSON) -> str | None:
    content = result.get("content")
    if not isinstance(content, list):
        return "content is no list"
    if not isinstance(result.get("isError", False), bool):
        return "isError is neither true nor false"
    for number, block in enumerate(cast(list[object], content)):
        if (fault := _find_block_fault(block)) is not None:
            return f"content block {number} {fault}"
    return None


def _find_block_fault(block: object) -> str | None:
    kind = _get(block, "type")
    if not isinstance(kind, str):
        return "has no type"
    for name in REQUIRED_TEXTS.get(kind, ()):
        if not isinstance(_get(block, name), str):
            return f"is of type {kind} without {name}"
    if kind == "resource":
        resource = _get(block, "resource")
        if not isinstance(_get(resource, "uri"), str):
            return "is a resource without uri"
        if not any(isinstance(_get(resource, name), str) for name in ("text", "blob")):
            return "is a resource without text or blob"
    return None


def _get(value: object, name: str) -> Any:
    return cast(JSON, value).get(name) if isinstance(value, dict) else None


__all__ = ["validate_result"]
