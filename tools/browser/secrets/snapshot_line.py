"""One line of a snapshot: the role and the ref of its element, and the value after them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_LINE: Final = re.compile(
    r"""(?P<key> *- (?P<quote>')?(?P<role>[\w-]+)(?: "(?:[^"\\]|\\.)*")?(?P<states>(?: \[[^\]]*\])*)(?(quote)'))"""
    r"(?:: (?P<value>.*))?"
)
"""Matches the line of an element. YAML puts the whole key in quotes where the name has signs such as `: `."""
_REF: Final = re.compile(r" \[ref=([gtfe\d]+)\]")


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


__all__ = ["SnapshotLine", "parse_line"]
