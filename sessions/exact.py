"""JSON in which every number and every text stays what it is."""

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


__all__ = ["dumps", "loads"]
