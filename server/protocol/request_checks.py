"""Checks whether the parameters of a client can be passed on to an upstream.

A lone surrogate, NaN or infinity, or too deep a nesting would fail in the transport to an upstream, which other callers may
share. So they are refused before the request does anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, cast

import orjson

from ...sessions.errors import InvalidArgument

DEPTH: Final = 200
"""Levels that the parameters of a request may have."""

_ENCODABLE: Final = 254
"""Levels that orjson encodes."""

_STRICT: Final = json.JSONEncoder(allow_nan=False, check_circular=False)


def refuse_unsound(params: Mapping[str, Any]) -> None:
    """Check that every transport can carry these parameters.

    Raises:
        InvalidArgument: they cannot be carried.
    """
    if _certainly_sound(params):
        return
    fault = _fault(params)
    if fault is not None:
        raise InvalidArgument(f"The request holds {fault}.")


def _certainly_sound(params: Mapping[str, Any]) -> bool:
    try:
        text = orjson.dumps(params)
        if text.count(b"{") + text.count(b"[") > DEPTH:
            orjson.dumps(_deeper(params))
        if b"null" in text:
            # orjson writes NaN and infinity as null.
            _STRICT.encode(params)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _deeper(value: object) -> object:
    for _ in range(_ENCODABLE - DEPTH):
        value = [value]
    return value


def _fault(params: object) -> str | None:
    """Return the first fault in all of the parameters, None without one; integers beyond 64 bits are none."""
    left: list[tuple[object, int]] = [(params, 1)]
    while left:
        value, depth = left.pop()
        if isinstance(value, Mapping | list) and depth > DEPTH:
            return f"more than {DEPTH} levels of nesting"
        if isinstance(value, Mapping):
            for key, item in cast("Mapping[object, object]", value).items():
                left += (key, depth + 1), (item, depth + 1)
        elif isinstance(value, list):
            left += [(item, depth + 1) for item in cast("list[object]", value)]
        elif isinstance(value, str) and not _is_text(value):
            return "a text that is no Unicode (half of a surrogate pair)"
        elif isinstance(value, float) and not math.isfinite(value):
            return "a number that is not finite"
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


__all__ = ["DEPTH", "refuse_unsound"]
