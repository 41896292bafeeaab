"""Arguments of tools: empty ones, and the text of their schemas."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from support.browsing import Browse, section

from statehold.sessions.errors import InvalidArgument
from statehold.sessions.json_codec import JSON
from statehold.tools.browser.config import CAPABILITIES, BrowserConfig
from statehold.tools.browser.tool import BrowserTool
from statehold.tools.browser.tools import toolset
from statehold.tools.catalog import repair_definition

TOOLS = toolset(BrowserConfig(caps=list(CAPABILITIES)))

MAY_BE_EMPTY = {("browser_route", "body"), ("browser_handle_dialog", "promptText")}
"""Arguments for which an empty value means something else than a missing one."""


def schema_of(tool: BrowserTool) -> JSON:
    return tool.spec().definition["inputSchema"]


def example(part: JSON) -> Any:
    """Return the least that a part of a schema takes."""
    if "enum" in part:
        return part["enum"][0]
    match part.get("type"):
        case "object":
            return {name: example(part["properties"][name]) for name in part.get("required", ())}
        case "array":
            return [example(part["items"])]
        case "boolean":
            return True
        case "number" | "integer":
            return part.get("minimum", 0)
        case _:
            return "a"


def optional_texts(schema: JSON) -> list[str]:
    required = schema.get("required", ())
    properties: JSON = schema.get("properties", {})
    return [
        name
        for name, part in properties.items()
        if name not in required and part.get("type") == "string" and "default" not in part
    ]


def validated(tool: BrowserTool, arguments: JSON) -> BaseModel:
    return tool.arguments.model_validate(arguments, by_alias=True, by_name=False)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_an_empty_text_is_taken_for_left_out_unless_it_means_something(tool: BrowserTool) -> None:
    schema = schema_of(tool)
    least = example(schema)
    without = validated(tool, least)
    for name in optional_texts(schema):
        arguments = validated(tool, least | {name: ""})
        same = arguments.model_dump() == without.model_dump()
        assert same == ((tool.name, name) not in MAY_BE_EMPTY), name


def test_an_empty_text_within_an_argument_is_taken_for_left_out() -> None:
    (tool,) = (tool for tool in TOOLS if tool.name == "browser_video_show_actions")
    assert validated(tool, {"style": {"title": ""}}).model_dump()["style"]["title"] is None


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("browser_type", "text"),
        ("browser_localstorage_set", "value"),
        ("browser_cookie_set", "value"),
    ],
)
def test_a_required_text_may_be_empty(name: str, argument: str) -> None:
    (tool,) = (tool for tool in TOOLS if tool.name == name)
    arguments = validated(tool, example(schema_of(tool)) | {argument: ""})
    assert arguments.model_dump()[argument] == ""


def test_schemas_say_what_numbers_may_be() -> None:
    bounds = {
        tool.name: {
            name: (part.get("minimum"), part.get("maximum"))
            for name, part in schema_of(tool).get("properties", {}).items()
            if part.get("type") == "number"
        }
        for tool in TOOLS
    }
    assert bounds["browser_resize"] == {"width": (1, 10_000), "height": (1, 10_000)}
    assert bounds["browser_route"]["status"] == (200, 599)
    assert bounds["browser_mouse_click_xy"]["clickCount"] == (1, 20)
    assert bounds["browser_snapshot"]["depth"] == (0, None)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_definitions_need_no_repair(tool: BrowserTool) -> None:
    """The tool list takes the definitions of the browser as they are."""
    definition = tool.spec().definition
    assert repair_definition(definition, "browser") == definition


def test_descriptions_are_of_one_line_and_arguments_that_need_one_have_one() -> None:
    described = {"navigate", "click", "emulate_media", "handle_dialog", "route"}
    for tool in TOOLS:
        assert tool.description == " ".join(tool.description.split())
        if tool.name.removeprefix("browser_") in described:
            for name, part in schema_of(tool)["properties"].items():
                assert part.get("description"), (tool.name, name)


@pytest.mark.peer
async def test_empty_optional_arguments_change_no_answer(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("evaluate", {"function": "() => 1", "target": ""}, "1"),
        (
            "find",
            {"text": "Increment", "regex": "", "filename": ""},
            'Found 1 match for "Increment":',
        ),
        ("wait_for", {"text": "Counter", "textGone": ""}, "Waited for Counter"),
        ("wait_for", {"time": 0.01, "text": ""}, "Waited for 0.01 seconds"),
        ("unroute", {"pattern": ""}, "Removed all 0 route(s)"),
        ("hide_highlight", {"target": "", "element": ""}, "Hid page highlight"),
    ]
    for tool, arguments, result in calls:
        text = await browse.text(tool, **arguments)
        assert section(text, "Result").startswith(result), tool


@pytest.mark.peer
async def test_a_cookie_with_an_empty_place_is_of_the_current_page(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("cookie_set", name="a", value="1", domain="", path="")
    assert "a=1 (domain: 127.0.0.1, path: /" in await browse.text("cookie_get", name="a")


@pytest.mark.peer
async def test_a_new_tab_without_an_address_is_an_empty_one(browse: Browse) -> None:
    text = section(await browse.text("tabs", action="new", url=""), "Result")
    assert text.splitlines()[-1] == "- 1: (current) [](about:blank)"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("browser_navigate", {}, "expected string, received undefined at url"),
        ("browser_navigate", {"url": 123}, "expected string, received number at url"),
        (
            "browser_resize",
            {"width": "wide", "height": 1},
            "expected number, received string at width",
        ),
        ("browser_handle_dialog", {"accept": None}, "expected boolean, received null at accept"),
        (
            "browser_fill_form",
            {"fields": [{"target": "e1", "name": "Age", "type": "textbox", "value": ["a"]}]},
            "expected string, received array at fields.0.value",
        ),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_in_the_words_of_the_peer(
    name: str, arguments: JSON, message: str
) -> None:
    (tool,) = (tool for tool in TOOLS if tool.name == name)
    with pytest.raises(InvalidArgument) as refusal:
        tool.parse(arguments)
    assert refusal.value.message == (
        f'Invalid arguments for tool "{name}": Invalid input: {message}.'
    )
