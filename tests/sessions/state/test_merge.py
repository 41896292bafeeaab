"""Three-way merge of states: per place, in the order of the sources, losing no deletion and restoring nothing."""

from __future__ import annotations

import copy
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statehold.sessions.json_codec import JSON
from statehold.sessions.state.merge import (
    CONFLICT_LIMIT,
    Branch,
    ConflictPolicy,
    merge_branches,
    same_json,
)

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)
policies = st.sampled_from(["last_wins", "first_wins"])


def merge(
    base: JSON, target: JSON, *sources: JSON, policy: ConflictPolicy = "last_wins"
) -> tuple[JSON, list[tuple[str, str, bool]]]:
    branches = [Branch(str(number), base, value) for number, value in enumerate(sources)]
    value, conflicts = merge_branches(target, branches, policy)
    return value, [(c.path, c.source, c.was_taken) for c in conflicts]


CASES: list[tuple[str, JSON, JSON, list[JSON], JSON, list[str]]] = [
    (
        "who left it alone restores nothing",
        {"k": 0},
        {"k": 0},
        [{"k": 1}, {"k": 0}],
        {"k": 1},
        [],
    ),
    (
        "a deletion is kept",
        {"k": 0, "o": 1},
        {"k": 0, "o": 1},
        [{"o": 1}, {"k": 0, "o": 1}],
        {"o": 1},
        [],
    ),
    (
        "nested siblings are kept",
        {"n": {"x": 1, "y": 1}},
        {"n": {"x": 1, "y": 1}},
        [{"n": {"x": 2, "y": 1}}, {"n": {"x": 1, "y": 2}}],
        {"n": {"x": 2, "y": 2}},
        [],
    ),
    (
        "an empty base",
        {},
        {},
        [{"a": {"x": 1}}, {"a": {"y": 2}, "b": 3}],
        {"a": {"x": 1, "y": 2}, "b": 3},
        [],
    ),
    (
        "three branches, a counter and their own keys",
        {"counter": 0},
        {"counter": 0},
        [{"counter": n, f"branch_{n}_result": n} for n in (1, 2, 3)],
        {"counter": 3, "branch_1_result": 1, "branch_2_result": 2, "branch_3_result": 3},
        ["/counter", "/counter"],
    ),
    ("the target's own change is one too", {"k": 0}, {"k": 5}, [{"k": 1}], {"k": 1}, ["/k"]),
    ("the target's own key stays", {}, {"mine": 1}, [{"its": 2}], {"mine": 1, "its": 2}, []),
    ("the same change is no conflict", {"k": 0}, {"k": 1}, [{"k": 1}, {}], {}, ["/k"]),
    ("1 and true are not the same", {"k": 1}, {"k": 1}, [{"k": True}], {"k": True}, []),
    (
        "what was deleted with the rest is not restored",
        {"a": {"b": 1, "c": 1}},
        {},
        [{"a": {"b": 2, "c": 1}}],
        {"a": {"b": 2}},
        ["/a"],
    ),
    ("an array is one place", {"l": [1]}, {"l": [1, 2]}, [{"l": [1, 3]}], {"l": [1, 3]}, ["/l"]),
    ("a slash is written as one", {"a/b": 0}, {"a/b": 1}, [{"a/b": 2}], {"a/b": 2}, ["/a~1b"]),
]


@pytest.mark.parametrize(
    ("base", "target", "sources", "expected", "paths"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_merge_joins_the_changes_of_its_branches(
    base: JSON, target: JSON, sources: list[JSON], expected: JSON, paths: list[str]
):
    given_ = copy.deepcopy((base, target, sources))
    value, conflicts = merge(base, target, *sources)
    assert same_json(value, expected)
    assert [path for path, _, _ in conflicts] == paths
    assert all(was_taken for _, _, was_taken in conflicts)
    assert (base, target, sources) == given_


def test_the_first_wins_where_that_is_wanted():
    base = {"k": 0, "a": {"b": 1, "c": 1}}
    one, two = {"k": 1, "a": {"b": 1, "c": 1}}, {"k": 2, "a": 5}
    value, conflicts = merge(base, base, one, two, policy="first_wins")
    assert value == {"k": 1, "a": 5}
    assert conflicts == [("/k", "1", False)]


def test_more_conflicts_than_are_named_are_counted():
    base, one, two = ({str(key): value for key in range(CONFLICT_LIMIT + 5)} for value in (0, 1, 2))
    _, conflicts = merge_branches(one, [Branch("b", base, two)], "last_wins")
    assert (len(conflicts), conflicts.total) == (CONFLICT_LIMIT, CONFLICT_LIMIT + 5)


@given(objects, objects, objects, policies)
def test_untouched_places_are_the_targets_and_deletions_are_kept(
    base: JSON, target: JSON, source: JSON, policy: ConflictPolicy
):
    value, _ = merge(base, target, source, policy=policy)
    for key in {*base, *target, *source}:
        before, ours, theirs = base.get(key, ...), target.get(key, ...), source.get(key, ...)
        if same_json(before, theirs):
            assert same_json(value.get(key, ...), ours)
        elif same_json(before, ours):
            assert same_json(value.get(key, ...), theirs)


@pytest.mark.thorough
@given(objects, st.lists(objects, min_size=2, max_size=3))
def test_without_conflicts_the_order_is_nothing(base: JSON, sources: list[JSON]):
    value, conflicts = merge(base, base, *sources)
    if not conflicts:
        for order in permutations(sources):
            assert same_json(merge(base, base, *order)[0], value)


@pytest.mark.thorough
@given(objects, objects, objects)
def test_a_merge_is_the_same_every_time_and_once_is_enough(base: JSON, target: JSON, source: JSON):
    value, conflicts = merge(base, target, source)
    assert merge(base, target, source) == (value, conflicts)
    again, _ = merge(base, value, source)
    assert same_json(again, value)


@pytest.mark.thorough
@given(objects, objects, objects)
def test_nested_siblings_of_a_change_are_kept(base: JSON, one: JSON, two: JSON):
    """A merge below the root gives the same result as one at the root."""
    value, conflicts = merge(base, one, two)
    below, inner = merge({"n": base, "s": 1}, {"n": one, "s": 2}, {"n": two, "s": 1})
    assert same_json(below, {"n": value, "s": 2})
    assert [path for path, _, _ in inner] == [f"/n{path}" for path, _, _ in conflicts]
