"""The JSON object a session carries: merge patch, compare-and-set, limits."""

from __future__ import annotations

import json
from typing import Any, Literal, cast

import orjson

from .errors import StateConflict, StateInvalid
from .records import StateRecord

LIMIT = 1 << 20
"""Bytes a state may take as JSON text."""

Mode = Literal["merge", "replace"]


def merge_patch(target: object, patch: object) -> object:
    """Return `target` with `patch` applied as RFC 7396 says; neither is changed, the result shares what stayed the same."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(cast("dict[str, object]", target)) if isinstance(target, dict) else {}
    for key, value in cast("dict[str, object]", patch).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def updated(
    state: StateRecord,
    values: dict[str, Any],
    *,
    mode: Mode = "merge",
    if_version: int | None = None,
) -> StateRecord:
    """Return the next version of a state.

    Raises:
        StateConflict: `if_version` is not the version at hand.
        StateInvalid: the result is larger than LIMIT bytes or is not JSON.
    """
    if if_version is not None and if_version != state.version:
        raise StateConflict(
            f"The state is at version {state.version}, not {if_version}.",
            session_id=state.session_id,
        )
    value = merge_patch(state.value, values) if mode == "merge" else values
    check(value, state.session_id)
    return state.model_copy(update={"version": state.version + 1, "value": value})


def check(value: object, session_id: str | None = None) -> None:
    """Refuse what cannot be a state.

    Raises:
        StateInvalid: it is larger than LIMIT bytes, or not JSON.
    """
    try:
        size = size_of(value)
    except ValueError as error:
        raise StateInvalid(f"The state is not JSON: {error}", session_id=session_id) from None
    if size > LIMIT:
        raise StateInvalid(
            f"The state would take {size} bytes; {LIMIT} are allowed.", session_id=session_id
        )


def size_of(value: object) -> int:
    """Return how many bytes a value takes as JSON text.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return len(orjson.dumps(value))
    except (orjson.JSONEncodeError, RecursionError):
        # orjson refuses integers of more than 64 bits, which are legal JSON.
        pass
    try:
        return len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


__all__ = ["LIMIT", "check", "merge_patch", "size_of", "updated"]
