"""Three-way merge of states: the changes of each branch since it was forked, combined place by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from ..json_codec import JSON
from .patch import MISSING, pointer

ConflictPolicy = Literal["last_wins", "first_wins", "fail"]

CONFLICT_LIMIT: Final = 1000
"""Most conflicts that a merge names; more are only counted."""
_EMPTY: Final[JSON] = {}


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """A place that a source changed, and that the target or an earlier source changed differently."""

    path: str
    source: str
    was_taken: bool
    """Whether the source's change was taken."""


class Conflicts(list[MergeConflict]):
    """The first conflicts of one merge; `total` is the number of all."""

    total = 0

    def add(self, path: tuple[str, ...], source: str, was_taken: bool) -> None:
        self.total += 1
        if len(self) < CONFLICT_LIMIT:
            self.append(MergeConflict(pointer(path), source, was_taken))


@dataclass(frozen=True, slots=True)
class Branch:
    """A source of a merge: its name, its current state, and the state it was forked with."""

    name: str
    base: JSON
    value: JSON


def merge_branches(
    target: JSON, branches: Sequence[Branch], policy: ConflictPolicy
) -> tuple[JSON, Conflicts]:
    """Return the target with the changes of the branches, in their order, and the conflicts.

    A member that one branch deleted is deleted. A member that a branch left alone keeps the value the others gave it. An
    array is one place. The arguments are not changed.
    """
    conflicts = Conflicts()
    value: object = target
    for branch in branches:
        merge = _Merge(branch.name, policy, conflicts)
        value = merge.of(branch.base, value, branch.value, ())
    return cast("JSON", value), conflicts


class _Merge:
    """The merge of one branch."""

    def __init__(self, source: str, policy: ConflictPolicy, conflicts: Conflicts) -> None:
        self._source = source
        self._first = policy == "first_wins"
        self._conflicts = conflicts

    def of(self, base: object, ours: object, theirs: object, path: tuple[str, ...]) -> object:
        if same_json(theirs, base):
            return ours
        if same_json(ours, base) or same_json(ours, theirs):
            return theirs
        if isinstance(ours, dict) and isinstance(theirs, dict):
            return self._of_objects(base, cast("JSON", ours), cast("JSON", theirs), path)
        self._conflicts.add(path, self._source, not self._first)
        return _changes(base, cast("object", ours if self._first else theirs))

    def _of_objects(self, base: object, ours: JSON, theirs: JSON, path: tuple[str, ...]) -> JSON:
        before = cast("JSON", base) if isinstance(base, dict) else _EMPTY
        merged: JSON = {}
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            new = self.of(
                before.get(key, MISSING),
                ours.get(key, MISSING),
                theirs.get(key, MISSING),
                (*path, key),
            )
            if new is not MISSING:
                merged[key] = new
        return merged


def _changes(base: object, value: object) -> object:
    """Return a value without the members it has from its base: the other side of a conflict gave those up."""
    if not isinstance(base, dict) or not isinstance(value, dict):
        return value
    base_members, members = cast("JSON", base), cast("JSON", value)
    return {
        key: _changes(base_members.get(key, MISSING), item)
        for key, item in members.items()
        if not same_json(base_members.get(key, MISSING), item)
    }


def same_json(left_value: object, right_value: object) -> bool:
    """Return whether two JSON values are the same. 1 and 1.0 are not, nor are 1 and true."""
    if left_value is right_value:
        return True
    if type(left_value) is not type(right_value):
        return False
    if isinstance(left_value, dict):
        left, right = cast("JSON", left_value), cast("JSON", right_value)
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left_value, list):
        items, others = cast("list[object]", left_value), cast("list[object]", right_value)
        return len(items) == len(others) and all(map(same_json, items, others))
    return left_value == right_value
