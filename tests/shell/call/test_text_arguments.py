"""Arguments that were given as texts arrive as the schema of the tool wants them, or nothing runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statehold.server.protocol.text_arguments import parse_texts, signature
from statehold.sessions.errors import InvalidArgument

TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["123", "true", "null", "a,b", "@", "", "\n", "[1]", "{}", "-", "1e3", '"x"']),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
)
INTEGER: dict[str, Any] = {"type": "integer"}
STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}


def parsed(schema: object, text: Any) -> Any:
    root = {"type": "object", "properties": {"x": schema}, "$defs": {"size": INTEGER}}
    return parse_texts("tool", root, {"x": text}, {})["x"]


@given(TEXTS)
def test_a_text_stays_as_it_is(text: str) -> None:
    assert parsed({"type": "string"}, text) == text
    assert parsed({"anyOf": [{"type": "string"}, {"type": "object"}]}, "a") == "a"


@given(st.integers())
def test_a_whole_number_arrives_as_one(number: int) -> None:
    assert parsed(INTEGER, str(number)) == number
    assert parsed({"$ref": "#/$defs/size"}, str(number)) == number
    assert parsed({"anyOf": [INTEGER, {"type": "null"}]}, str(number)) == number


@given(st.lists(st.text(alphabet="abc 1.", min_size=1), min_size=1))
def test_a_list_is_split_at_commas_given_again_or_json(items: list[str]) -> None:
    assert parsed(STRINGS, ",".join(items)) == items
    assert parsed(STRINGS, json.dumps(items)) == items
    assert parsed(STRINGS, items) == items


@given(TEXTS)
def test_a_text_becomes_a_value_of_its_type_or_is_refused(text: str) -> None:
    kinds: dict[str, Any] = {
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "object": dict,
    }
    for name, kind in kinds.items():
        value = parsed_or_none({"type": name}, text)
        assert value is None or (
            isinstance(value, kind) and (name == "boolean") is (type(value) is bool)
        )


def parsed_or_none(schema: object, text: str) -> Any:
    """Return the value of a text, None if it is refused for its type."""
    try:
        return parsed(schema, text)
    except InvalidArgument as error:
        if not error.message.startswith("x: should be "):
            raise
        return None


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "boolean"}, "yes", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "number"}, "1e3", 1000.0),
        (INTEGER, "5.0", 5),
        ({"enum": ["1", "a"]}, "1", "1"),
        ({"enum": [1, True]}, "true", True),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "number"]}, "12", 12),
        ({"type": ["string", "null"]}, "12", "12"),
        ({}, "12", 12),
        ({}, "a b", "a b"),
        ({"type": "array", "items": INTEGER}, "1,2", [1, 2]),
        ({"type": "array"}, "", []),
        ({"anyOf": [STRINGS, {"type": "null"}]}, "a,b", ["a", "b"]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        (True, "text", "text"),
    ],
)
def test_the_schema_decides(schema: object, text: str, value: object) -> None:
    found = parsed(schema, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"x": "a"}, "x: should be a whole number, found 'a'."),
        ({"x": ["1", "2"]}, "x: it is given several times."),
        ({"y": "1"}, "there is no argument 'y'."),
        ({}, "x: required."),
        ({"x": "NaN"}, "found 'NaN'"),
        ({"x": 5}, "the arguments are no texts."),
        ([], "the arguments are no texts."),
        ({"x": "1" * 5000}, "should be a whole number"),
    ],
)
def test_a_refusal_names_the_argument_and_the_signature(texts: object, says: str) -> None:
    schema = {"properties": {"x": INTEGER, "on": {"type": "boolean"}}, "required": ["x"]}
    with pytest.raises(InvalidArgument) as refused:
        parse_texts("size", schema, texts, {})
    assert says in refused.value.message
    assert refused.value.recovery == "Arguments of size: x=integer [on=yes|no]"


def test_json_and_texts_are_one_set_of_arguments() -> None:
    schema = {"properties": {"x": INTEGER, "y": {}}}
    assert parse_texts("tool", schema, {"x": "1"}, {"y": [2]}) == {"x": 1, "y": [2]}
    with pytest.raises(InvalidArgument, match="x is given twice"):
        parse_texts("tool", schema, {"x": "1"}, {"x": 2})


def test_a_schema_that_refers_to_itself_ends() -> None:
    node: dict[str, Any] = {"anyOf": [{"$ref": "#/properties/x"}, {"type": "integer"}]}
    assert parse_texts("tool", {"properties": {"x": node}}, {"x": "1"}, {}) == {"x": 1}
    assert signature({"properties": {"x": node}}) == "[x=integer]"
