"""JSON in which every number and every text stays what it is, and texts that any transport can carry."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json, to_json


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


__all__ = ["dumps", "loads", "well_formed"]
