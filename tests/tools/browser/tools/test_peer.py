"""The tools beside those of @playwright/mcp: the same names and arguments; of the core ones sections and snapshots too."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, TextIO

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from support.browsing import Browse, section, text_of

from statehold.tools.browser.config import CAPABILITIES, BrowserConfig, Capability
from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.peer

Step = tuple[str, dict[str, Any]]

STEPS: list[Step] = [
    ("snapshot", {}),
    ("navigate", {"url": "/counter"}),
    ("snapshot", {}),
    ("click", {"target": "text=Increment", "element": "Increment"}),
    ("click", {"target": "#list button", "doubleClick": True, "button": "right"}),
    ("snapshot", {}),
    ("evaluate", {"function": "() => document.title"}),
    ("evaluate", {"function": "e => e.id", "target": "#said", "element": "status"}),
    ("resize", {"width": 900, "height": 700}),
    ("emulate_media", {"colorScheme": "dark"}),
    ("navigate", {"url": "/form"}),
    ("type", {"target": "[name=first]", "text": "Ada"}),
    ("type", {"target": "[name=last]", "text": "L", "slowly": True}),
    ("press_key", {"key": "Tab"}),
    ("select_option", {"target": "[name=country]", "values": ["Japan"]}),
    (
        "fill_form",
        {
            "fields": [
                {"target": "[name=email]", "name": "Email", "type": "textbox", "value": "a@b.c"},
                {"target": "[name=terms]", "name": "Terms", "type": "checkbox", "value": "true"},
            ]
        },
    ),
    ("snapshot", {}),
    ("snapshot", {"depth": 2}),
    ("snapshot", {"target": "fieldset"}),
    ("find", {"text": "name"}),
    ("find", {"text": "nothing like it"}),
    ("type", {"target": "[name=first]", "text": "Ada", "submit": True}),
    ("snapshot", {}),
    ("navigate_back", {}),
    ("navigate", {"url": "/hover"}),
    ("hover", {"target": "[role=button]"}),
    ("snapshot", {}),
    ("navigate", {"url": "/drag"}),
    ("drag", {"startTarget": "#from", "endTarget": "#to"}),
    ("drop", {"target": "#to", "data": {"text/plain": "a word"}}),
    ("snapshot", {}),
    ("navigate", {"url": "/iframes"}),
    ("snapshot", {}),
    ("navigate", {"url": "/shadow"}),
    ("snapshot", {}),
    ("navigate", {"url": "/many?refs=200"}),
    ("snapshot", {}),
    ("navigate", {"url": "/dialogs"}),
    ("click", {"target": "text=Confirm"}),
    ("handle_dialog", {"accept": True}),
    ("snapshot", {}),
    ("navigate", {"url": "/popup"}),
    ("tabs", {"action": "list"}),
    ("tabs", {"action": "new"}),
    ("tabs", {"action": "select", "index": 0}),
    ("snapshot", {}),
    ("tabs", {"action": "close", "index": 1}),
    ("wait_for", {"text": "New tab"}),
    ("wait_for", {"time": 0.01}),
    ("network_requests", {"static": True}),
    ("network_request", {"index": 1}),
    ("console_messages", {"level": "info"}),
    ("take_screenshot", {"scale": "css"}),
    ("close", {}),
]


@pytest.fixture
def quiet() -> Generator[TextIO]:
    with open(os.devnull, "w") as file:
        yield file


@pytest.fixture
async def peer(
    playwright_command: list[str],
    chromium: str,
    shell: str,
    tmp_path: Path,
    quiet: TextIO,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[ClientSession]:
    """The peer, in the same browser as ours; with the capabilities of the parameter, where there is one."""
    program, *arguments = playwright_command
    arguments[arguments.index("--caps") + 1] = getattr(request, "param", "storage")
    command = StdioServerParameters(
        command=program,
        args=[shell if argument == chromium else argument for argument in arguments],
        cwd=tmp_path,
        env=dict(os.environ),
    )
    async with stdio_client(command, quiet) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


async def ask(peer: ClientSession, tool: str, arguments: dict[str, Any]) -> str:
    result = await peer.call_tool(f"browser_{tool}", arguments)
    text = "\n".join(block.text for block in result.content if block.type == "text")
    assert not result.is_error, text
    # Ours reports errors only, and has the other entries in browser_console_messages.
    return re.sub(r"^### Events\n- New console entries: .*\Z", "", text, flags=re.M)


def sections(text: str) -> list[str]:
    names = re.findall(r"^### (.+)$", text, re.M)
    # Ours describes no page during a dialog; the peer links a snapshot that it cannot have taken.
    return [name for name in names if name != "Snapshot" or "Modal state" not in names]


@pytest.mark.thorough
async def test_the_same_calls_answer_with_the_same_sections_and_snapshots(
    peer: ClientSession, browse: Browse, lab: str
) -> None:
    for tool, template in STEPS:
        arguments = template | ({"url": lab + template["url"]} if "url" in template else {})
        theirs = await ask(peer, tool, arguments)
        ours = text_of(await browse.call(tool, **arguments))
        assert sections(ours) == sections(theirs), f"{tool} {template}\n{ours}\n---\n{theirs}"
        if tool == "snapshot":
            assert section(ours, "Snapshot") == section(theirs, "Snapshot"), (tool, template)
        if "### Page" in theirs:
            assert section(ours, "Page") == section(theirs, "Page"), (tool, template)


def shape(part: dict[str, Any]) -> object:
    """Return the types that a schema accepts, without descriptions, bounds and defaults, and whether it is closed."""
    keywords = ("type", "enum", "items", "properties", "anyOf", "additionalProperties")
    result: dict[str, Any] = {}
    for key in keywords:
        value = part.get(key)
        if key == "properties" and value is not None:
            result[key] = {name: shape(value[name]) for name in sorted(value)}
        elif key == "anyOf" and value is not None:
            result[key] = [shape(one) for one in value]
        elif isinstance(value, dict):
            result[key] = shape(value)  # pyright: ignore[reportUnknownArgumentType]
        elif value is not None and value is not False:
            result[key] = value
    return result


LEFT_OUT = {"browser_annotate"}
"""Left out by design: in it a human draws in a dashboard of the peer."""
OWN_ARGUMENTS = {
    "browser_snapshot": ["max_tokens"],
    "browser_mouse_move_xy": ["element"],
    "browser_mouse_click_xy": ["element"],
    "browser_mouse_drag_xy": ["element"],
}
"""Arguments that this release of the peer does not have; all are optional. Others of its releases have `element`."""
SWITCHES = {
    "browser_start_tracing",
    "browser_stop_tracing",
    "browser_start_video",
    "browser_stop_video",
    "browser_video_chapter",
    "browser_video_show_actions",
    "browser_video_hide_actions",
    "browser_start_recording",
    "browser_stop_recording",
}
"""Tools that are read-only only for the peer. Ours are not, because they change the session's settings."""
SHARED_CAPS: list[Capability] = [cap for cap in CAPABILITIES if cap != "webmcp"]
"""The groups that the peer has, too. It lists the tools of a page as tools of its own."""
PEERS_CAPS = ",".join(cap for cap in SHARED_CAPS if cap not in ("core", "unsafe"))
"""The peer has the unsafe tools among its core ones."""


@pytest.mark.thorough
@pytest.mark.parametrize("peer", [PEERS_CAPS], indirect=True, ids=["all"])
async def test_all_tools_have_the_names_and_arguments_of_the_peer(peer: ClientSession) -> None:
    theirs = {tool.name: tool for tool in (await peer.list_tools()).tools}
    config = BrowserConfig(caps=SHARED_CAPS)
    ours = {tool.name: tool for tool in await BrowserService("b", config).tools()}
    assert set(theirs) - set(ours) == LEFT_OUT
    assert not set(ours) - set(theirs)
    plain = {tool.name for tool in await BrowserService("b", BrowserConfig()).tools()}
    assert "browser_run_code_unsafe" not in plain
    for name, own in ours.items():
        schema, wanted = own.definition["inputSchema"], theirs[name].input_schema
        known = dict(schema["properties"])
        for argument in OWN_ARGUMENTS.get(name, ()):
            del known[argument]
        assert shape(schema | {"properties": known}) == shape(wanted), name
        # The peer also requires arguments that have a default.
        needed = {
            key for key in wanted.get("required", ()) if "default" not in wanted["properties"][key]
        }
        assert set(schema.get("required", ())) == needed, name
        hints, their_hints = own.definition["annotations"], theirs[name].annotations
        assert their_hints is not None
        wanted_hint = their_hints.read_only_hint and name not in SWITCHES
        assert hints["readOnlyHint"] == wanted_hint, name
        assert their_hints.read_only_hint or name not in SWITCHES, name
        assert hints["title"] == their_hints.title, name
