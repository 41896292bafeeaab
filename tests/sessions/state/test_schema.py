"""Schemas of states: which are allowed, the error texts, and checks that would not end."""

from __future__ import annotations

import itertools

import anyio
import pytest

from statehold.sessions.errors import InvalidArgument, StateInvalid
from statehold.sessions.json_codec import JSON
from statehold.sessions.state.patch import LIMIT
from statehold.sessions.state.state_schema import SCHEMA_LIMIT, check_schema, check_value

REFUSED: list[tuple[str, JSON]] = [
    ("/type is no valid schema", {"type": "objekt"}),
    ("/properties/a/minLength is no valid", {"properties": {"a": {"minLength": "long"}}}),
    ("dialect", {"$schema": "http://json-schema.org/draft-07/schema#"}),
    ("remote", {"$ref": "https://example.org/schema.json"}),
    ("remote", {"properties": {"a": {"$ref": "other.json#/a"}}}),
    ("remote", {"allOf": [{"$dynamicRef": "http://127.0.0.1/x#a"}]}),
    ("leads nowhere", {"$ref": "#/$defs/missing"}),
    ("remote", {"x-own": {"$ref": "http://127.0.0.1/"}, "$ref": "#/x-own"}),
    ("remote", {"$id": "http://127.0.0.1/", "properties": {"a": {"$ref": "a.json"}}}),
    ("/pattern .*looks around", {"properties": {"a": {"pattern": "(?=a)b"}}}),
    ("regular expression", {"patternProperties": {"(": {}}}),
    ("too large", {"properties": {"a": {"pattern": "a{60000}"}}}),
    ("bytes", {"description": "x" * SCHEMA_LIMIT}),
    ("JSON", {"const": object()}),
]


@pytest.mark.parametrize(("said", "schema"), REFUSED)
async def test_a_schema_that_is_broken_or_leads_elsewhere_is_refused(
    said: str, schema: JSON
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        await check_schema(schema)


@pytest.mark.parametrize("levels", [500, 6000])
async def test_a_schema_that_is_too_deep_is_refused(levels: int) -> None:
    schema: JSON = {}
    for _ in range(levels):
        schema = {"not": schema}
    with pytest.raises(InvalidArgument):
        await check_schema(schema)


WRONG: list[tuple[JSON, JSON, str]] = [
    ({"total": "much"}, {"type": "number"}, r'^/total does .* at /properties/total/type: the value'),
    ({"total": 2**80 + 1}, {"const": 2**80}, "/total does not fit"),
    ({"total": [1, {}, 1.0]}, {"uniqueItems": True}, "non-unique"),
    ({"total": "PEAR"}, {"pattern": "^[a-z]+$"}, "/total does not fit"),
    ({"total": {"a/b": 1}}, {"properties": {"a/b": {"maximum": 0}}}, "^/total/a~1b does not"),
    ({"total": 1, "more": 2}, {}, r"^The state does .* at /additionalProperties: .*'more'"),
    ({"total": "\ud800"}, {"pattern": "a"}, "surrogates"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "schema", "said"), WRONG)
async def test_an_error_names_the_place_and_the_rule(value: JSON, schema: JSON, said: str) -> None:
    whole: JSON = {"properties": {"total": schema}, "additionalProperties": False}
    await check_schema(whole)
    await check_value(whole, {})
    with pytest.raises(StateInvalid, match=said) as caught:
        await check_value(whole, value)
    assert "much" not in str(caught.value), "an error text holds a value of the state"


def doubling(levels: int) -> JSON:
    """A schema that takes 2 ** levels steps."""
    names = [f"d{level}" for level in range(levels)]
    definitions: JSON = {
        name: {"allOf": [{"$ref": f"#/$defs/{after}"}] * 2}
        for name, after in itertools.pairwise(names)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, names[-1]: {"type": "object"}}}


async def test_a_check_without_end_is_ended_and_holds_up_neither_the_loop_nor_others() -> None:
    """One principal uses one process at a time, so a small check of another does not wait for the endless ones."""
    order: list[str] = []

    async def endless() -> None:
        with pytest.raises(StateInvalid, match="too long"):
            await check_value(doubling(60), {}, owner="alice")
        order.append("alice")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(endless)
            tasks.start_soon(endless)
            await anyio.wait_all_tasks_blocked()
            await check_value({"required": ["a"]}, {"a": 1}, owner="bob")
            order.append("bob")
    assert order == ["bob", "alice", "alice"]


async def test_references_that_apply_to_the_same_value_again_end() -> None:
    for schema in ({"$ref": "#"}, {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}):
        await check_schema(schema)
        await check_value(schema, {})


async def test_a_pattern_takes_linear_time_on_a_state_of_the_largest_size() -> None:
    schema = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    with anyio.fail_after(20), pytest.raises(StateInvalid, match="/a"):
        await check_value(schema, {"a": "a" * (LIMIT - 20) + "b"})


@pytest.mark.thorough
async def test_a_pattern_and_a_text_that_are_too_much_together_are_ended() -> None:
    schema = {"properties": {"a": {"pattern": "((a{100}){10}){5}x"}}}
    with anyio.fail_after(60), pytest.raises(StateInvalid, match="too long"):
        await check_value(schema, {"a": "a" * (LIMIT - 20)})
