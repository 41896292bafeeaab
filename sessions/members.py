"""The members of a JSON object that no parser reads, because something deep inside it is past a limit or is wrong."""

from __future__ import annotations

import json
import re
from typing import Final

# Nothing here is ever tried twice, so that a line takes no longer than its length. A string without an end takes the rest.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+'
_TOKEN: Final = re.compile(
    rf'({_STRING})(\s*+:\s*+({_STRING}|[^\s"\[\]{{}}:,]++)?+)?+|[\[{{]++|[\]}}]++', re.DOTALL
)

UNREADABLE: Final = object()
"""Stands for a value that is no JSON."""


def members(text: str) -> dict[str, object]:
    """Return the members of an object, with None for each that is an object or an array; nothing when it has no end.

    No parser is asked, because what one refuses need not be near them: Python's has a limit of 4,300 digits and of about
    1,000 levels, and wants all of it to be JSON.
    """
    # Windows PowerShell begins what it pipes with a byte order mark.
    text = text.lstrip("\ufeff \t\r\n")
    found: dict[str, object] = {}
    depth = 0
    if not text.startswith("{"):
        return found
    for token in _TOKEN.finditer(text):
        key, colon, value = token.groups()
        if key is None:
            run = token[0]
            depth += len(run) if run[0] in "[{" else -len(run)
        elif depth == 1 and colon:
            found[str(_scalar(key))] = _scalar(value)
    return found if depth == 0 else {}


def _scalar(written: str | None) -> object:
    try:
        return None if written is None else json.loads(written, strict=False)
    except ValueError:
        return UNREADABLE


__all__ = ["UNREADABLE", "members"]
