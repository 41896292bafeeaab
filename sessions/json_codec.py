"""The JSON that Statehold stores and sends: exact integers, and text that every transport can carry."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

JSON: TypeAlias = dict[str, Any]
"""A JSON object as parsed: str, int, float, bool, None, list and dict only."""


def dumps(value: object) -> str:
    """Write JSON in which every integer stays exact."""
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value)  # half a surrogate pair, which only escapes can hold


def loads(text: str) -> Any:
    """Read JSON that dumps() wrote."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def well_formed(text: str) -> str:
    """Return a text in which each half of a surrogate pair, which no transport can carry, is replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


__all__ = ["JSON", "dumps", "loads", "well_formed"]
