"""Definitions of tools, prompts, templates and pages as they are pinned, and the difference of two of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, Final, Literal, TypeAlias

from ...sessions.json_codec import JSON
from ...sessions.one_line import escape_controls

Kind: TypeAlias = Literal["tool", "prompt", "template", "page"]
Part: TypeAlias = tuple[Literal["same", "old", "new"], str]
"""A part of two definitions: it is in both, or in one of them."""

_FIELDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "tool": ("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    "prompt": ("name", "title", "description", "arguments"),
    "template": ("uriTemplate", "name", "title", "description", "mimeType", "annotations"),
    "page": ("contents",),
}
"""The members that a person approves: what models and people read, and how it is called."""
MAX_WORDS: Final = 4000
"""The words of a definition that are compared; of a longer one, only the lines."""
_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")


def definition_of(kind: Kind, item: Mapping[str, Any]) -> str:
    """Return what is pinned of an item, as canonical JSON."""
    members = {name: item[name] for name in _FIELDS[kind] if item.get(name) is not None}
    return json.dumps(members, sort_keys=True, separators=(",", ":"))


def digest_of(definition: str) -> str:
    return hashlib.sha256(definition.encode()).hexdigest()


def difference(before: str, after: str) -> list[Part]:
    """Return the parts of two definitions, in order, with each character that is not seen as an escape."""
    old, new = _words(before), _words(after)
    parts: list[Part] = []
    for tag, first, last, begin, end in SequenceMatcher(None, old, new, False).get_opcodes():
        if tag == "equal":
            parts.append(("same", "".join(old[first:last])))
            continue
        parts.append(("old", "".join(old[first:last])))
        parts.append(("new", "".join(new[begin:end])))
    return [part for part in parts if part[1]]


def _words(definition: str) -> list[str]:
    text = "\n".join(_lines(json.loads(definition)))
    words: list[str] = _WORD.findall(text)
    return words if len(words) <= MAX_WORDS else text.splitlines(keepends=True)


def _lines(document: JSON) -> Iterator[str]:
    """Yield a definition as a person reads it: texts as they are, everything else as JSON."""
    for name, value in document.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        yield f"{name}: " + "\n".join(map(escape_controls, text.split("\n")))
