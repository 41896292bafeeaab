"""Statehold's own tools: how a model becomes a schema, and how arguments are checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, JsonValue

from statehold.sessions.errors import InvalidArgument
from statehold.sessions.json_codec import JSON
from statehold.sessions.records import LOCAL
from statehold.sessions.times import format_duration
from statehold.tools.definition import Arguments, schema_of
from statehold.tools.own.own_tool import Outcome, OwnTool, ToolContext


class ExampleArguments(Arguments):
    session_id: Annotated[str, Field(min_length=1)]
    count: Annotated[int, Field(ge=0, le=10)] = 1
    most: Annotated[int, Field(ge=0)] | None = None
    seconds: float | None = None
    flag: bool | None = None
    note: Annotated[str | None, Field(description="A note.")] = None
    kind: Literal["a", "b"] | None = None
    values: dict[str, JsonValue] | None = None


class ExampleResult(BaseModel):
    note: str | None


async def give_back(_: ToolContext, arguments: ExampleArguments) -> Outcome:
    return Outcome(arguments.model_dump())


TOOL = OwnTool("tool", "Tool", "A tool.", ExampleArguments, ExampleResult, give_back)


def test_an_optional_argument_is_one_that_may_be_left_out() -> None:
    schema = schema_of(ExampleArguments)
    assert schema["required"] == ["session_id"]
    assert "additionalProperties" not in schema
    properties: JSON = schema["properties"]
    assert properties["note"]["type"] == "string"
    assert properties["kind"] == {"type": "string", "enum": ["a", "b"]}
    assert properties["count"]["default"] == 1
    assert "title" not in str(schema)


def test_a_result_may_hold_null() -> None:
    schema = schema_of(ExampleResult, "serialization")
    assert schema["properties"]["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schema["required"] == ["note"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"session_id": "s", "count": 11}, "count: "),
        ({"session_id": "s", "count": "many"}, "count: "),
        ({"session_id": "s", "count": True}, "count: input should be a valid integer."),
        ({"session_id": "s", "most": False}, "most: input should be a valid integer."),
        ({"session_id": "s", "seconds": True}, "seconds: input should be a valid number."),
        ({"session_id": "s", "kind": "c"}, "kind: "),
        ({"session_id": 7}, "session_id: "),
    ],
)
async def test_a_wrong_argument_is_named(arguments: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await TOOL.run(ToolContext(LOCAL), arguments)
    assert raised.value.message.startswith(f"tool: {problem}")
    assert "pydantic" not in raised.value.message


async def test_an_unknown_argument_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match="tool has no argument 'other'; it takes: session_id"):
        await TOOL.run(ToolContext(LOCAL), {"other": 1, "session_id": 7})


async def test_the_session_of_a_pinned_call_is_no_argument_to_choose() -> None:
    with pytest.raises(InvalidArgument) as raised:
        await TOOL.run(ToolContext(LOCAL, pinned_session="sh_1"), {"other": 1})
    assert "session_id" not in raised.value.message


async def test_a_number_may_be_written_in_other_ways() -> None:
    for count in (3, 3.0, "3"):
        content = (await TOOL.run(ToolContext(LOCAL), {"session_id": "s", "count": count})).content
        assert content["count"] == 3
        assert type(content["count"]) is int
    arguments: JSON = {"session_id": "s", "most": None, "seconds": 3, "flag": True}
    content = (await TOOL.run(ToolContext(LOCAL), arguments)).content
    assert (content["most"], content["seconds"], content["flag"]) == (None, 3.0, True)


async def test_null_stands_for_an_argument_that_is_left_out() -> None:
    outcome = await TOOL.run(ToolContext(LOCAL), {"session_id": "s", "note": None, "values": None})
    assert outcome.content["note"] is None


@pytest.mark.parametrize(
    ("seconds", "duration"),
    [
        (0, "never"),
        (1, "1 second"),
        (60, "1 minute"),
        (900, "15 minutes"),
        (5400, "90 minutes"),
        (86_400, "1 day"),
        (604_800, "7 days"),
        (0.5, "0.5 seconds"),
    ],
)
def test_durations_are_formatted_in_words(seconds: float, duration: str) -> None:
    assert format_duration(seconds) == duration
