"""Earlier versions of a state, as far as the changes in a journal lead back to them.

The store has one version of a state. A change that was made in a run is in the journal. Undone from the present state, it
leaves the places that it set unknown, and older changes tell what was there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, cast

from ..journal.secret_names import REDACTED
from ..records import JournalKind, JournalRecord
from .patch import MISSING, pointer, tokens_of, value_at

_VERSION: Final = re.compile(r"version (\d{1,18})")
_CUT: Final = frozenset({"truncated", "unencodable", "withheld"})
"""Members of arguments that the journal does not have completely."""


class _Absence(Enum):
    UNKNOWN = "unknown"
    UNTOUCHED = "untouched"


_UNKNOWN: Final = _Absence.UNKNOWN
_UNTOUCHED: Final = _Absence.UNTOUCHED


@dataclass(frozen=True, slots=True)
class StateChange:
    """The change that led to a version."""

    version: int
    path: tuple[str, ...]
    values: Any
    replaces: bool
    seq: int
    at: float
    run: str | None


@dataclass(frozen=True, slots=True)
class EarlierState:
    """The value of a version; `unknown` are the places whose value nothing tells, as JSON pointers."""

    version: int
    value: dict[str, Any]
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class StateVersions:
    """The versions up to the present one. `first` is the value of version 0 where it is known, as it is of a fork."""

    version: int
    value: Mapping[str, Any]
    changes: Mapping[int, StateChange]
    first: Mapping[str, Any] | None = None
    earliest: int = field(init=False)
    """The version to which the changes lead back without a gap."""

    def __post_init__(self) -> None:
        earliest = self.version
        while earliest in self.changes:
            earliest -= 1
        object.__setattr__(self, "earliest", earliest)

    def at(self, version: int) -> EarlierState | None:
        """Return a version, None if it cannot be had."""
        if version == 0 and self.first is not None:
            return EarlierState(0, dict(self.first), [])
        if not self.earliest <= version <= self.version:
            return None
        value: object = self.value
        for newer in range(self.version, version, -1):
            change = self.changes[newer]
            value = _undo(value, change.path, change)
        unknown: list[str] = []
        value = self._fill(value, (), version, unknown)
        return EarlierState(version, cast("dict[str, Any]", value) if value else {}, unknown)

    def _fill(
        self, value: object, path: tuple[str, ...], version: int, unknown: list[str]
    ) -> object:
        """Return a value with what older changes tell about its unknown places; those that stay so are left out."""
        if value is _UNKNOWN:
            value = self._look_up(path, version)
            if value is _UNKNOWN:
                unknown.append(pointer(path))
                return MISSING
            return value
        if not isinstance(value, dict):
            return value
        members = cast("dict[str, object]", value)
        filled = {
            key: self._fill(item, (*path, key), version, unknown) for key, item in members.items()
        }
        return {key: item for key, item in filled.items() if item is not MISSING}

    def _look_up(self, path: tuple[str, ...], version: int) -> object:
        while version in self.changes:
            found = _value_set(self.changes[version], path)
            if found is not _UNTOUCHED:
                return _UNKNOWN if _has_secrets(found) else found
            version -= 1
        if version == 0 and self.first is not None:
            return value_at(self.first, path)
        return _UNKNOWN


def read_changes(entries: Iterable[JournalRecord]) -> dict[int, StateChange]:
    """Return the changes that a journal has completely, by the version that each led to."""
    changes: dict[int, StateChange] = {}
    for entry in entries:
        arguments = cast("dict[str, Any]", entry.request or {})
        match = _VERSION.fullmatch(_text_of(entry.result))
        if entry.kind is not JournalKind.STATE or match is None or "values" not in arguments:
            continue
        values = arguments["values"]
        if not _CUT.isdisjoint(arguments):
            continue
        version = int(match[1])
        changes[version] = StateChange(
            version,
            tuple(tokens_of(arguments.get("path", ""))),
            values,
            arguments.get("mode") == "replace",
            entry.seq,
            entry.started_at,
            entry.run,
        )
    return changes


def _text_of(result: object) -> str:
    content: object = cast("dict[str, Any]", result).get("content") if result else None
    return str(cast("list[Any]", content)[0]) if isinstance(content, list) and content else ""


def _undo(value: object, path: Sequence[str], change: StateChange) -> object:
    """Return a value with the places that a change set unknown."""
    if not path:
        return _UNKNOWN if change.replaces else _undo_patch(value, change.values)
    if isinstance(value, list):
        items = cast("list[object]", value)
        # An array of one item may have been made by the change.
        was_appended = list(path) == ["-"] and len(items) > 1 and change.values is not None
        return items[:-1] if was_appended else _UNKNOWN
    if not isinstance(value, dict):
        return _UNKNOWN
    members = dict(cast("dict[str, object]", value))
    members[path[0]] = _undo(members.get(path[0], _UNKNOWN), path[1:], change)
    return members


def _undo_patch(value: object, patch: object) -> object:
    if not isinstance(value, dict) or not isinstance(patch, dict):
        return _UNKNOWN
    members = dict(cast("dict[str, object]", value))
    for key, item in cast("dict[str, object]", patch).items():
        members[key] = _undo_patch(members.get(key), item)
    return members


def _value_set(change: StateChange, path: tuple[str, ...]) -> object:
    """Return the value that a change set at a path, MISSING if it deleted that, UNKNOWN if it set a part of it."""
    depth = len(change.path)
    if change.path != path[:depth]:
        return _UNKNOWN if change.path[: len(path)] == path else _UNTOUCHED
    if change.replaces:
        return value_at(change.values, path[depth:])
    value: object = change.values
    for token in path[depth:]:
        if not isinstance(value, dict):
            return MISSING
        value = cast("dict[str, object]", value).get(token, _UNTOUCHED)
        if value is _UNTOUCHED:
            return _UNTOUCHED
    if isinstance(value, dict):
        return _UNKNOWN
    return MISSING if value is None else value


def _has_secrets(value: object) -> bool:
    if isinstance(value, str):
        return REDACTED in value
    if isinstance(value, dict):
        return any(map(_has_secrets, cast("dict[str, object]", value).values()))
    return isinstance(value, list) and any(map(_has_secrets, cast("list[object]", value)))
