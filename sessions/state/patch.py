"""The JSON object of a session: paths, merge patch, compare-and-set, limits.

Values in a state are never changed: an update shares the unchanged parts with the state before it. So values are copied when
they enter or leave a state.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, Literal, cast

import orjson

from ..errors import InvalidArgument, StateConflict, StateInvalid
from ..records import StateRecord

LIMIT: Final = 1 << 20
"""Most bytes of a state as JSON text, unless the policy has another limit."""
MAX_DEPTH: Final = 128
"""Most levels of a state."""

_ENCODABLE: Final = 254
"""Levels that orjson encodes."""
_PLAIN: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_STRICT: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, check_circular=False)

Mode = Literal["merge", "replace"]


class _Missing(Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""The value at a path that does not exist."""


def tokens_of(path: str) -> list[str]:
    """Return the steps of a JSON pointer (RFC 6901).

    Raises:
        InvalidArgument: it is not a JSON pointer.
    """
    if not path:
        return []
    parts = path.split("/")
    if parts[0] or len(parts) > MAX_DEPTH or any(_is_broken(token) for token in parts):
        raise InvalidArgument(
            "path: should be a JSON pointer, which is empty or begins with a slash, such as /cart/items/0 "
            "(a slash within a name is ~1, a tilde ~0)."
        )
    return [token.replace("~1", "/").replace("~0", "~") for token in parts[1:]]


def _is_broken(token: str) -> bool:
    return "~" in token.replace("~0", "").replace("~1", "")


def pointer(tokens: Sequence[object]) -> str:
    """Return steps as a JSON pointer."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def value_at(value: object, tokens: Sequence[str]) -> object:
    """Return the value at a path, MISSING if there is none."""
    for token in tokens:
        if isinstance(value, dict):
            value = cast("dict[str, object]", value).get(token, MISSING)
        elif isinstance(value, list):
            items = cast("list[object]", value)
            index = _index(token)
            value = items[index] if index is not None and index < len(items) else MISSING
        else:
            return MISSING
    return value


def _index(token: str) -> int | None:
    plain = token.isascii() and token.isdigit() and len(token) < 10
    return int(token) if plain and (token == "0" or token[0] != "0") else None


def change_at(
    value: object, tokens: Sequence[str], change: Callable[[object], object], depth: int = 0
) -> object:
    """Return a value with `change` applied at a path. `change` gets MISSING for a new path, and returns it to delete.

    Missing objects on the path are created. The index after the last item of an array, also written `-`, appends an item;
    `-` at a missing value creates an array.

    Raises:
        StateInvalid: the path leads through a value that has no such place.
    """
    if depth == len(tokens):
        return change(value)
    token = tokens[depth]
    if value is MISSING and token == "-":
        value = []
    if isinstance(value, list):
        return _placed_item(cast("list[object]", value), tokens, change, depth)
    if value is MISSING:
        value = {}
    if not isinstance(value, dict):
        raise StateInvalid(f"{_path_text(tokens[:depth])} is neither an object nor an array.")
    members = dict(cast("dict[str, object]", value))
    new = change_at(members.get(token, MISSING), tokens, change, depth + 1)
    if new is MISSING:
        members.pop(token, None)
    else:
        members[token] = new
    return members


def _placed_item(
    items: list[object], tokens: Sequence[str], change: Callable[[object], object], depth: int
) -> object:
    index = len(items) if tokens[depth] == "-" else _index(tokens[depth])
    if index is None or index > len(items):
        here = _path_text(tokens[:depth])
        raise StateInvalid(
            f"{here} is an array of {len(items)}: {tokens[depth]!r:.50} is none of its places."
        )
    old = items[index] if index < len(items) else MISSING
    new = change_at(old, tokens, change, depth + 1)
    return [*items[:index], *(() if new is MISSING else (new,)), *items[index + 1 :]]


def _path_text(tokens: Sequence[object]) -> str:
    return f"{pointer(tokens):.200}" if tokens else "The state"


def merge_patch(target: object, patch: object) -> object:
    """Return `target` with `patch` applied (RFC 7396). Neither is changed; the result shares the unchanged parts."""
    if not isinstance(patch, dict):
        return patch
    members = dict(cast("dict[str, object]", target)) if isinstance(target, dict) else {}
    for key, value in cast("dict[str, object]", patch).items():
        if value is None:
            members.pop(key, None)
        else:
            members[key] = merge_patch(members.get(key), value)
    return members


def update_state(
    state: StateRecord,
    values: object,
    *,
    mode: Mode = "merge",
    if_version: int | None = None,
    path: str = "",
    limit: int = LIMIT,
) -> StateRecord:
    """Return the next version of a state, with `values` applied at `path`; below the root, they may be of any kind.

    Raises:
        StateConflict: `if_version` is not the current version.
        StateInvalid: the result is larger than `limit` bytes, not an object or not JSON, or there is no such place.
        InvalidArgument: `path` is not a JSON pointer.
    """
    if if_version is not None and if_version != state.version:
        raise StateConflict(
            f"The state is at version {state.version}, not {if_version}.",
            session_id=state.session_id,
        )
    validate_state(values, state.session_id, limit)
    new_values = copy_json(values)

    def change(old: object) -> object:
        if mode == "replace":
            return new_values
        # The root cannot be deleted: that is refused below.
        return MISSING if new_values is None and path else merge_patch(old, new_values)

    try:
        value = change_at(state.value, tokens_of(path), change)
    except StateInvalid as error:
        error.session_id = state.session_id
        raise
    if not isinstance(value, dict):
        raise StateInvalid("The state has to be an object.", session_id=state.session_id)
    validate_state(cast("object", value), state.session_id, limit)
    return state.model_copy(update={"version": state.version + 1, "value": value})


def copy_json(value: Any) -> Any:
    """Return a copy of a JSON value that is equal in every number and shares nothing with it."""
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        # Integers of more than 64 bits are legal JSON.
        return json.loads(json.dumps(value))


def validate_state(value: object, session_id: str | None = None, limit: int = LIMIT) -> None:
    """Check that a value may be a state or a part of one.

    Raises:
        StateInvalid: it is larger than `limit` bytes, deeper than MAX_DEPTH, or not JSON. The message names the place.
    """
    size = _size_if_sound(value)
    if size is None:
        fault = _fault(value)
        if fault is not None:
            raise StateInvalid(fault, session_id=session_id)
        size = size_of(value)
    if size > limit:
        raise StateInvalid(
            f"The state would take {size} bytes; {limit} are allowed (limits.state_bytes).",
            session_id=session_id,
        )


def _size_if_sound(value: object) -> int | None:
    """Return the size of a value that is certainly valid, None for one that needs a closer look."""
    try:
        text = orjson.dumps(value, option=_PLAIN)
        if text.count(b"{") + text.count(b"[") > MAX_DEPTH:
            orjson.dumps(_nest(value))
        if b"null" in text:
            # orjson writes numbers that are not finite as null.
            _STRICT.encode(value)
    except (TypeError, ValueError, RecursionError):
        return None
    return len(text)


def _nest(value: object) -> object:
    for _ in range(_ENCODABLE - MAX_DEPTH):
        value = [value]
    return value


def _fault(value: object) -> str | None:
    """Describe the first part that cannot be in a state, and where it is; None if there is none."""
    pending: list[tuple[object, tuple[object, ...]]] = [(value, ())]
    while pending:
        item, path = pending.pop()
        problem = _problem(item, len(path))
        if problem is not None:
            return f"{_path_text(path)} {problem}."
        if isinstance(item, dict):
            for key, member in cast("dict[object, object]", item).items():
                if not isinstance(key, str) or _problem(key, 0) is not None:
                    return f"{_path_text(path)} has a name that is no text."
                pending.append((member, (*path, key)))
        elif isinstance(item, list):
            items = cast("list[object]", item)
            pending += [(member, (*path, index)) for index, member in enumerate(items)]
    return None


def _problem(value: object, depth: int) -> str | None:
    kind = type(value)
    if kind in (dict, list):
        return f"would have more than {MAX_DEPTH} levels" if depth >= MAX_DEPTH else None
    if kind is float and not math.isfinite(cast("float", value)):
        return "is a number that is not finite"
    if kind is str:
        try:
            cast("str", value).encode()
        except UnicodeEncodeError:
            return "is a text that is no Unicode (half of a surrogate pair)"
    elif value is not None and kind not in (bool, int, float):
        return f"is not JSON but {kind.__name__}"
    return None


def size_of(value: object) -> int:
    """Return the bytes a value takes as JSON text.

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
