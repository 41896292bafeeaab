"""Merge patch as RFC 7396 says, compare-and-set, limits."""

from __future__ import annotations

import copy
import datetime
from typing import Any

import pytest
from hypothesis import strategies as st

from statehold.sessions.errors import InvalidArgument, StateInvalid
from statehold.sessions.records import StateRecord
from statehold.sessions.state.patch import (
    LIMIT,
    MAX_DEPTH,
    MISSING,
    Mode,
    copy_json,
    merge_patch,
    pointer,
    tokens_of,
    update_state,
    validate_state,
    value_at,
)

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


def test_large_integers_are_kept_and_large_states_are_refused():
    validate_state({"n": 2**200})
    with pytest.raises(StateInvalid):
        validate_state({"text": "x" * LIMIT})
    with pytest.raises(StateInvalid):
        validate_state({"n": 2**200, "text": "x" * LIMIT})


def test_a_state_that_is_not_json_is_refused():
    with pytest.raises(StateInvalid):
        validate_state({"set": {1}})
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(StateInvalid):
        validate_state(deep)


# Places.


@pytest.mark.parametrize(
    ("path", "tokens"),
    [
        ("", []),
        ("/", [""]),
        ("/a/b", ["a", "b"]),
        ("/a~1b/m~0n", ["a/b", "m~n"]),
        ("/~01", ["~1"]),
        ("/ ", [" "]),
    ],
)
def test_a_pointer_is_read_as_the_rfc_says(path: str, tokens: list[str]):
    """RFC 6901."""
    assert tokens_of(path) == tokens
    assert pointer(tokens) == path


@pytest.mark.parametrize("path", ["a", "a/b", "/a~", "/a~2", "#/a", "/a" * 128])
def test_an_invalid_pointer_is_refused(path: str):
    with pytest.raises(InvalidArgument, match="path"):
        tokens_of(path)


NESTED: dict[str, Any] = {"a": {"b": [10, {"c": None}]}, "": 1, "x/y": 2}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", NESTED),
        ("/a/b/0", 10),
        ("/a/b/1/c", None),
        ("/", 1),
        ("/x~1y", 2),
        ("/a/b/2", MISSING),
        ("/a/b/-", MISSING),
        ("/a/b/00", MISSING),
        ("/a/b/+1", MISSING),
        ("/a/b/²", MISSING),
        ("/a/b/0/c", MISSING),
        ("/b", MISSING),
    ],
)
def test_a_pointer_leads_to_its_value(path: str, found: object):
    value = value_at(NESTED, tokens_of(path))
    assert value is found if found is MISSING else value == found


CHANGES: list[tuple[Any, str, Any, str, Any]] = [
    ({}, "/a/b", 1, "merge", {"a": {"b": 1}}),
    ({"a": {"b": 1, "c": 2}}, "/a", {"b": None, "d": 3}, "merge", {"a": {"c": 2, "d": 3}}),
    ({"a": {"b": 1, "c": 2}}, "/a", {"d": None}, "replace", {"a": {"d": None}}),
    ({"a": {"b": 1, "c": 2}}, "/a/b", None, "merge", {"a": {"c": 2}}),
    ({"a": {"b": 1}}, "/a/b", None, "replace", {"a": {"b": None}}),
    ({"a": 1}, "/b/c", None, "merge", {"a": 1, "b": {}}),
    ({"a": [1, 2]}, "/a/0", 5, "merge", {"a": [5, 2]}),
    ({"a": [1, 2]}, "/a/0", None, "merge", {"a": [2]}),
    ({"a": [1, 2]}, "/a/-", 3, "replace", {"a": [1, 2, 3]}),
    ({"a": [1, 2]}, "/a/2", 3, "replace", {"a": [1, 2, 3]}),
    ({}, "/a/-", 3, "replace", {"a": [3]}),
    ({"a": [{"b": 1}]}, "/a/0/c", 2, "merge", {"a": [{"b": 1, "c": 2}]}),
]


@pytest.mark.parametrize(("before", "path", "values", "mode", "after"), CHANGES)
def test_an_update_changes_what_is_at_its_place(
    before: Any, path: str, values: Any, mode: Mode, after: Any
):
    state = StateRecord(session_id="s", value=copy.deepcopy(before))
    newer = update_state(state, values, path=path, mode=mode)
    assert (newer.value, newer.version) == (after, 1)
    assert state.value == before


@pytest.mark.parametrize(
    ("values", "path", "said"),
    [
        (1, "", "object"),
        (None, "", "object"),
        ([], "", "object"),
        (1, "/a/b", "/a is neither"),
        (1, "/list/3", "/list is an array of 1"),
        (1, "/list/x", "/list is an array of 1"),
    ],
)
@pytest.mark.parametrize("mode", ["merge", "replace"])
def test_a_state_stays_an_object_and_its_places_what_they_are(
    values: Any, path: str, said: str, mode: Mode
):
    state = StateRecord(session_id="s", value={"a": 1, "list": [1]})
    with pytest.raises(StateInvalid, match=said):
        update_state(state, values, path=path, mode=mode)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "/a/0"),
        (float("inf"), "/a/0"),
        (b"bytes", "/a/0"),
        ({1: 2}, "/a/0"),
        ("\ud800", "/a/0"),
        ({"\ud800": 1}, "/a/0"),
        ((1, 2), "/a/0"),
        (datetime.datetime(2026, 1, 1), "/a/0"),  # noqa: DTZ001
    ],
)
def test_an_error_about_invalid_json_has_its_place(value: object, place: str):
    with pytest.raises(StateInvalid, match=place):
        validate_state({"a": [value], "n": 2**80})


def test_a_cycle_and_too_many_levels_are_refused():
    cycle: dict[str, Any] = {}
    cycle["again"] = [cycle]
    with pytest.raises(StateInvalid, match="levels"):
        validate_state(cycle)
    deep: object = {}
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    validate_state(deep)
    with pytest.raises(StateInvalid, match="levels"):
        validate_state([deep])
    # Many are not deep, and a word is no number.
    many: list[Any] = [[] for _ in range(500)]
    validate_state({"a": many, "null": None, "text": "null"})


NUMBERS: list[Any] = [1.0, 0.1, -0.0, 1e300, 5e-324, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 2**200]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_copy_is_equal_in_every_number_and_shares_nothing(number: Any):
    value = {"n": number, "list": [number, {"deep": number}]}
    copied = copy_json(value)
    assert copied == value
    assert repr(copied) == repr(value)
    copied["list"][1]["deep"] = 0
    assert value["list"][1]["deep"] == number
