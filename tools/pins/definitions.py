"""Definitions of tools, prompts, templates and pages as they are pinned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from ...sessions.json_codec import JSON, canonical
from ..catalog import app_page

Kind: TypeAlias = Literal["tool", "prompt", "template", "page"]

_FIELDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "tool": (
        "name",
        "title",
        "description",
        "inputSchema",
        "outputSchema",
        "annotations",
        "icons",
        "page",
    ),
    "prompt": ("name", "title", "description", "arguments", "icons"),
    "template": ("uriTemplate", "name", "title", "description", "mimeType", "annotations", "icons"),
    "page": ("contents",),
}
"""The members that a person approves: what models and people read, and how it is called."""
_SESSION: Final = re.compile(r"(?:probe_[0-9a-f]{8}|sh_[a-z2-7]{26})")
"""Matches the id of a session, which a server with `{dir}` or `{session_id}` may name in its descriptions."""


def definition_of(kind: Kind, item: Mapping[str, Any]) -> str:
    """Return what is pinned of an item, as canonical JSON. It is the same for all sessions."""
    if kind == "tool":
        item = {**item, "page": app_page(item.get("_meta"))}
    elif kind == "page":
        item = {"contents": [_without_address(part) for part in item.get("contents") or ()]}
    members = {name: item[name] for name in _FIELDS[kind] if item.get(name) is not None}
    return _SESSION.sub("{session_id}", canonical(members))


def _without_address(part: object) -> object:
    """Return a part of a page without its URI, to which a pinned session adds its name."""
    if not isinstance(part, dict):
        return part
    return {name: value for name, value in cast("JSON", part).items() if name != "uri"}
