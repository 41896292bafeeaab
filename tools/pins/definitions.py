"""Definitions of tools, prompts, templates and pages as they are pinned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

Kind: TypeAlias = Literal["tool", "prompt", "template", "page"]

_FIELDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "tool": ("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    "prompt": ("name", "title", "description", "arguments"),
    "template": ("uriTemplate", "name", "title", "description", "mimeType", "annotations"),
    "page": ("contents",),
}
"""The members that a person approves: what models and people read, and how it is called."""


def definition_of(kind: Kind, item: Mapping[str, Any]) -> str:
    """Return what is pinned of an item, as canonical JSON."""
    members = {name: item[name] for name in _FIELDS[kind] if item.get(name) is not None}
    return json.dumps(members, sort_keys=True, separators=(",", ":"))


def digest_of(definition: str) -> str:
    return hashlib.sha256(definition.encode()).hexdigest()
