"""Merge patch as RFC 7396 says, compare-and-set, limits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statehold.sessions.errors import StateConflict, StateInvalid
from statehold.sessions.records import StateRecord
from statehold.sessions.state import LIMIT, check, merge_patch, updated

RFC_7396: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_7396)
def test_the_examples_of_the_rfc(target: Any, patch: Any, expected: Any):
    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == expected
    assert target == before


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)
objects = st.dictionaries(st.text(max_size=3), values, max_size=4)


@given(objects, objects)
def test_a_patch_applied_twice_changes_nothing_more(target: dict[str, Any], patch: dict[str, Any]):
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(objects, objects)
def test_what_a_patch_does_not_name_stays(target: dict[str, Any], patch: dict[str, Any]):
    merged = merge_patch(target, patch)
    assert isinstance(merged, dict)
    assert {k: v for k, v in merged.items() if k not in patch} == {  # pyright: ignore[reportUnknownVariableType]
        k: v for k, v in target.items() if k not in patch
    }


def test_an_update_raises_the_version_and_leaves_the_old_one_alone():
    state = StateRecord(session_id="s", version=3, value={"a": {"b": 1}})
    newer = updated(state, {"a": {"c": 2}}, if_version=3)
    assert (newer.version, newer.value) == (4, {"a": {"b": 1, "c": 2}})
    assert state.value == {"a": {"b": 1}}
    with pytest.raises(StateConflict):
        updated(newer, {}, if_version=3)


def test_large_integers_are_kept_and_large_states_are_refused():
    check({"n": 2**200})
    with pytest.raises(StateInvalid):
        check({"text": "x" * LIMIT})
    with pytest.raises(StateInvalid):
        check({"n": 2**200, "text": "x" * LIMIT})


def test_what_is_not_json_is_refused():
    with pytest.raises(StateInvalid):
        check({"set": {1}})
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(StateInvalid):
        check(deep)
