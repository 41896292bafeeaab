"""Lines of a snapshot: the roles and the refs of their elements, and the values after them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_LINE: Final = re.compile(
    r"""(?P<key> *- (?P<quote>')?(?P<role>[\w-]+)(?: "(?:[^"\\]|\\.)*")?(?P<states>(?: \[[^\]]*\])*)(?(quote)'))"""
    r"(?:: (?P<value>.*))?"
)
"""Matches the line of an element. YAML puts the whole key in quotes where the name has signs such as `: `."""
_REF: Final = re.compile(r" \[ref=([gtfe\d]+)\]")

_NAMED_BY_CONTENT: Final = frozenset(
    {
        *("button", "cell", "checkbox", "columnheader", "gridcell", "heading", "link", "menuitem"),
        *("menuitemcheckbox", "menuitemradio", "option", "radio", "row", "rowheader", "switch"),
        *("tab", "tooltip", "treeitem"),
    }
)
"""The roles whose names are made from the content of the element, with the values of fields in it."""


class SnapshotLine(NamedTuple):
    """The line of an element, or of a text, whose role is "text"."""

    key: str
    """The line up to the colon before the value."""
    role: str
    ref: str
    """"" if the element has none."""
    value: str
    """"" if there is none in this line."""


def parse_line(line: str) -> SnapshotLine | None:
    """Return the parts of a line, or None if it is not the line of an element. Signs in a name count as nothing else."""
    match = _LINE.match(line)
    if match is None:
        return None
    ref = _REF.search(match["states"])
    return SnapshotLine(match["key"], match["role"], ref[1] if ref else "", match["value"] or "")


def refs_of_field(snapshot: str) -> list[str]:
    """Return the refs of a field and of the elements in it, from the snapshot of the field; none if it cannot be hidden.

    An element whose name is made from its content has another ref after each change.
    """
    lines = [line for line in map(parse_line, snapshot.split("\n")) if line is not None]
    if not lines or not lines[0].ref or lines[0].role in _NAMED_BY_CONTENT:
        return []
    return [line.ref for line in lines if line.ref]


def mask_fields(snapshot: str, fields: Mapping[str, str]) -> str:
    """Return a snapshot in which the fields with these refs have these texts in place of their values."""
    lines: list[str] = []
    text, depth, is_shown = "", 0, False
    for line in snapshot.split("\n"):
        indent = len(line) - len(line.lstrip())
        if text and indent > depth:
            # The value of a field that has a placeholder or elements stands below it, in names of elements too.
            if line.lstrip().startswith("- /"):
                lines.append(line)
            elif not is_shown:
                lines.append(f"{line[:indent]}- text: {text}")
                is_shown = True
            continue
        parts = parse_line(line)
        text, depth = fields.get(parts.ref, "") if parts else "", indent
        is_shown = bool(parts and parts.value)
        lines.append(f"{parts.key}: {text}" if parts and text and parts.value else line)
    return "\n".join(lines)
