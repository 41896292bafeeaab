"""The JSON that Statehold stores and sends: exact integers, and text that every transport can carry."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Final, TypeAlias, TypeVar, cast

import orjson
from pydantic_core import from_json, to_json

JSON: TypeAlias = dict[str, Any]
"""A JSON object as parsed: str, int, float, bool, None, list and dict only."""


T = TypeVar("T")

LARGE: Final = 1 << 20
"""Characters of a JSON value with which work on it takes milliseconds."""
MEMBER: Final = 16
"""Characters that take as long as a member."""


def dumps(value: object) -> str:
    """Write JSON in which every integer stays exact."""
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value)  # half a surrogate pair, which only escapes can hold


def canonical(value: object) -> str:
    """Write JSON in ASCII that is the same for the same members in another order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def loads(text: str | bytes) -> Any:
    """Read JSON in which every integer stays exact. Raises ValueError or RecursionError."""
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


def encode(message: JSON) -> bytes:
    """Return a message as JSON. Unlike orjson alone, it encodes integers beyond 64 bits.

    NaN and infinity become null, as with orjson. Half of a surrogate pair becomes a replacement character, because many
    clients cannot read its escape.
    """
    try:
        return orjson.dumps(message)
    except TypeError:
        pass
    try:
        text = _dump_exact(message)
    except ValueError:
        text = _dump_exact(_replace_non_finite(message))
    return well_formed(text).encode()


def _dump_exact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _replace_non_finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _replace_non_finite(item) for key, item in cast("JSON", value).items()}
    if isinstance(value, list):
        return [_replace_non_finite(item) for item in cast("list[object]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def room_left(value: object, room: int, *, member: int = 1) -> int:
    """Return `room` less the characters of a JSON value and `member` for each of its members; negative once it is used up.

    It takes no longer than the room lasts.
    """
    values = [value]
    for item in values:
        if isinstance(item, str):
            room -= len(item)
            continue
        if isinstance(item, dict):
            fields = cast("dict[object, object]", item)
            children = fields.values()
        elif isinstance(item, list):
            children = fields = cast("list[object]", item)
        else:
            continue
        room -= member * len(children)
        if room < 0:
            break
        if fields is not children:
            room -= sum(map(len, map(str, fields)))
        values += children
    return room


def is_large(value: object) -> bool:
    """Return whether work on a JSON value takes so long that it has to run in a thread."""
    # Writing JSON takes a tenth of the time of a look at each member, and less than reading it. A member takes a byte.
    try:
        if len(orjson.dumps(value)) * MEMBER <= LARGE:
            return False
    except TypeError:
        pass
    return room_left(value, LARGE, member=MEMBER) < 0
