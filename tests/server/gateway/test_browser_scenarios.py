"""Scenarios of agents in a browser, through real clients. The agents use only results, and do not know the pages' source."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from lab import Lab
from mcp import Client
from support.gateway_process import JSON, opened_session
from support.patches import patched

pytestmark = [pytest.mark.peer, pytest.mark.thorough]

WAYS = [("http", "modern")]
"""Tests without a browser, and those of test_browser.py, check that the other transports and eras give the same answers."""
LETTER = "Dear harbour,\na berth, please.\n"


@pytest.fixture(scope="module")
def letter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that the configuration lets be uploaded."""
    path = tmp_path_factory.mktemp("letters") / "letter.txt"
    path.write_text(LETTER)
    return path


@pytest.fixture(scope="module")
def settings(headless_shell: str, letter: Path) -> JSON:
    browser = {"executable": headless_shell, "uploads": [str(letter.parent)]}
    return {"services": {"browser": browser}}


@pytest.fixture(scope="module")
def whole_lab() -> Generator[Lab]:
    with Lab() as site:
        yield site


@pytest.fixture
def lab(whole_lab: Lab) -> Lab:
    """The site, with an empty log."""
    whole_lab.hits.clear()
    whole_lab.sent.clear()
    return whole_lab


@pytest.fixture
async def ada(client: Client, tmp_path: Path) -> AsyncGenerator[Agent]:
    """An agent in a separate session. At the end its screenshot goes to the folder of the test."""
    agent = Agent(client, await opened_session(client))
    yield agent
    (tmp_path / "end.png").write_bytes(await agent.screenshot())
    await agent.call("session_close")


@dataclass
class Agent:
    """Calls tools in one session, and remembers the page as the snapshots and differences of results show it."""

    client: Client
    session: str
    seen: str = ""

    async def call(self, tool: str, /, **arguments: Any) -> types.CallToolResult:
        with anyio.fail_after(40):
            return await self.client.call_tool(tool, {"session_id": self.session, **arguments})

    async def do(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that has to succeed and return the text of its result."""
        result = await self.call(f"browser_{tool}", **arguments)
        text = text_of(result)
        assert not result.is_error, text
        match = re.search(r"^### Snapshot\n```(yaml|diff)\n(.*?)^```", text, re.M | re.S)
        if match:
            shown = match[2].rstrip("\n")
            self.seen = (shown if match[1] == "yaml" else patched(self.seen, shown)) + "\n"
        return text

    async def click(self, role: str, name: str, **inside: str) -> str:
        return await self.do("click", target=self.ref(role, name, **inside), element=name)

    async def type(self, name: str, text: str, role: str = "textbox", **more: Any) -> str:
        return await self.do("type", target=self.ref(role, name), text=text, **more)

    async def look(self) -> str:
        await self.do("snapshot")
        return self.seen

    def ref(self, role: str, name: str, *, below: str = "") -> str:
        """Return the ref of the only element with this role and name, or with `below` of the first one after a matching
        line.
        """
        part = self.seen[self.seen.index(below) :] if below else self.seen
        line = rf'^ *- \'?{role} "{re.escape(name)}".*?\[ref=(\w+)\]'
        matches = re.findall(line, part, re.M)
        assert matches, f"no {role} {name!r} in\n{part}"
        assert below or len(matches) == 1, f"{len(matches)} times {role} {name!r} in\n{part}"
        return matches[0]

    def field(self, type: str, name: str, value: str, role: str = "") -> JSON:
        return {
            "target": self.ref(role or type, name),
            "name": name,
            "type": type,
            "value": value,
        }

    async def screenshot(self) -> bytes:
        result = await self.call("browser_take_screenshot")
        assert not result.is_error, text_of(result)
        [picture] = [b for b in result.content if isinstance(b, types.ImageContent)]
        data = base64.b64decode(picture.data)
        assert data.startswith(b"\x89PNG")
        return data


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(b.text for b in result.content if isinstance(b, types.TextContent))


def digest(data: bytes) -> str:
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


async def test_log_in(ada: Agent, login_site: str) -> None:
    await ada.do("navigate", url=login_site)
    await ada.type("Name", "ada")
    await ada.type("Password", "sesame")
    await ada.click("button", "Log in")
    assert "alert [ref=" in ada.seen
    assert "Wrong name or password." in ada.seen
    await ada.type("Name", "ada")
    assert "Your berth" in await ada.type("Password", "open sesame", submit=True)
    assert 'heading "Logged in as ada"' in ada.seen
    await ada.click("link", "Counter")
    await ada.do("navigate_back")
    # Counted by the site, of whom it knows.
    assert re.search(r"term .*: Visits\n.*definition .*: \"?2\"?\n", ada.seen)
    await ada.click("button", "Log out")
    assert 'heading "Logged out"' in ada.seen


async def test_search(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/search")
    await ada.type("Search boats", "am", "searchbox", slowly=True)
    assert re.findall(r'option "(\w+)"', ada.seen) == ["Amber", "Amsel", "Camber"]
    await ada.click("option", "Camber")
    assert 'heading "1 found"' in ada.seen
    await ada.type("Search boats", "brise & co", "searchbox", submit=True)
    assert 'heading "0 found"' in ada.seen
    await ada.type("Search boats", "BRISE", "searchbox")
    await ada.click("button", "Search")
    assert "Page Title: Brise - Lab" in await ada.click("link", "Brise")
    assert "a cutter of 14 metres" in ada.seen
    assert [hit for hit in lab.hits if "/api/" not in hit] == [
        "GET 127.0.0.1/search",
        "GET 127.0.0.1/search?q=Camber",
        "GET 127.0.0.1/search?q=brise+%26+co",
        "GET 127.0.0.1/search?q=BRISE",
        "GET 127.0.0.1/boats/3",
    ]


async def test_fill_a_long_form(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/form")
    fields = [
        ada.field("textbox", "First name", "Ada"),
        ada.field("textbox", "Last name", "King, Countess of Lovelace"),
        ada.field("textbox", "Email", "ada@example.org"),
        ada.field("textbox", "Password", "pässword & more"),
        ada.field("textbox", "Age", "36", "spinbutton"),
        ada.field("textbox", "Born", "1815-12-10"),
        ada.field("slider", "Level", "75"),
        ada.field("combobox", "Country", "Portugal"),
        ada.field("radio", "Outside", "true"),
        ada.field("checkbox", "Send me news", "true"),
        ada.field("checkbox", "I accept the terms", "true"),
        ada.field("textbox", "Notes", "Two lines,\nboth short."),
        ada.field("textbox", "Free text", "freer"),
    ]
    await ada.do("fill_form", fields=fields)
    sports = ada.ref("listbox", "Sports")
    await ada.do("select_option", target=sports, values=["Rowing", "Chess"])
    # The agent can check the fields before it sends the form.
    for line in (': "75"', 'option "Portugal" [selected]', 'radio "Outside" [checked]', ": Ada\n"):
        assert line in ada.seen
    assert "Page Title: Sent - Lab" in await ada.click("button", "Send")
    [(path, fields_sent)] = lab.sent
    assert path == "/form"
    assert fields_sent == [
        ("first", "Ada"),
        ("last", "King, Countess of Lovelace"),
        ("email", "ada@example.org"),
        ("secret", "pässword & more"),
        ("age", "36"),
        ("born", "1815-12-10"),
        ("level", "75"),
        ("country", "Portugal"),
        ("sports", "Rowing"),
        ("sports", "Chess"),
        ("berth", "outside"),
        ("news", "on"),
        ("terms", "on"),
        ("notes", "Two lines,\r\nboth short."),
    ]


async def test_download_a_file_and_upload_it_with_another(
    ada: Agent, lab: Lab, letter: Path
) -> None:
    await ada.do("navigate", url=f"{lab.url}/downloads")
    link = ada.ref("link", "Small file")
    result = await ada.call("browser_click", target=link)
    assert "Downloaded file small.txt to " in text_of(result)
    [file] = [b for b in result.content if isinstance(b, types.ResourceLink)]
    assert (file.name, file.size, file.mime_type) == ("small.txt", 15, "text/plain")
    [content] = (await ada.client.read_resource(str(file.uri))).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.text == "the small file\n"

    await ada.do("navigate", url=f"{lab.url}/upload")
    assert "[File chooser]: can be handled by browser_file_upload" in await ada.click(
        "button", "Files"
    )
    await ada.do("file_upload", paths=[str(file.uri), str(letter)])
    await ada.click("button", "Upload")
    assert "small.txt" in ada.seen
    expected = [("small.txt", digest(b"the small file\n")), ("letter.txt", digest(LETTER.encode()))]
    assert lab.sent == [("/upload", expected)]


async def test_file_chooser_of_a_button(ada: Agent, lab: Lab, letter: Path) -> None:
    await ada.do("navigate", url=f"{lab.url}/chooser")
    await ada.click("button", "Choose a file")
    waits = await ada.call("browser_click", target=ada.ref("button", "Choose files"))
    assert waits.is_error
    assert "can be handled by browser_file_upload" in text_of(waits)
    two = await ada.call("browser_file_upload", paths=[str(letter), str(letter)])
    assert two.is_error
    assert "This file chooser takes one file." in text_of(two)
    strange = await ada.call("browser_file_upload", paths=["/etc/hostname"])
    assert strange.is_error
    assert "is no file of this session and none in a folder for uploads" in text_of(strange)
    await ada.do("file_upload", paths=[str(letter)])
    assert f"letter.txt: {len(LETTER)} bytes" in ada.seen
    await ada.click("button", "Choose files")
    await ada.do("file_upload")
    assert f"letter.txt: {len(LETTER)} bytes" in await ada.look()


async def test_two_tabs(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/counter")
    await ada.click("button", "Increment")
    text = await ada.do("tabs", action="new", url=f"{lab.url}/frame?name=second")
    assert f"- 0: [Counter - Lab]({lab.url}/counter)" in text
    assert f"- 1: (current) [Frame second - Lab]({lab.url}/frame?name=second)" in text
    await ada.type("Word", "here")
    await ada.do("tabs", action="select", index=0)
    await ada.look()
    await ada.click("button", "Increment")
    assert re.search(r'status .*: "2"', ada.seen)
    await ada.do("tabs", action="select", index=1)
    await ada.look()
    assert "heard here" in await ada.click("button", "Tell")
    text = await ada.do("tabs", action="close", index=0)
    assert f"- 0: (current) [Frame second - Lab]({lab.url}/frame?name=second)" in text
    assert "Counter" not in text
    assert lab.hits == ["GET 127.0.0.1/counter", "GET 127.0.0.1/frame?name=second"]


async def test_dialogs(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/dialogs")
    text = await ada.click("button", "Confirm")
    assert '["confirm" dialog with message "Really?"]' in text
    assert "browser_handle_dialog" in text
    waits = await ada.call("browser_snapshot")
    assert waits.is_error
    assert "answer first what the page asks" in text_of(waits)
    await ada.do("handle_dialog", accept=False)
    assert "confirm: false" in await ada.look()
    await ada.click("button", "Confirm")
    await ada.do("handle_dialog", accept=True)
    assert "confirm: true" in await ada.look()
    assert '["prompt" dialog with message "Your name?"]' in await ada.click("button", "Prompt")
    await ada.do("handle_dialog", accept=True, promptText="Ada, née Byron")
    assert "prompt: Ada, née Byron" in await ada.look()
    await ada.click("button", "Guard this page")
    assert '"beforeunload" dialog' in await ada.click("link", "Leave")
    await ada.do("handle_dialog", accept=False)
    assert "guarded" in await ada.look()
    assert lab.hits == ["GET 127.0.0.1/dialogs"]


async def test_frames(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/iframes")
    assert f"GET {lab.other[7:].partition(':')[0]}/frame?name=far" in lab.hits
    for name in ("near", "far", "inner"):
        below = f'heading "Frame {name}"'
        await ada.do("type", target=ada.ref("textbox", "Word", below=below), text=f"to {name}")
        assert f"heard to {name}" in await ada.click("button", "Tell", below=below)
    assert ada.seen.count("heard") == 3


async def test_shadow_dom(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/shadow")
    await ada.type("Inside", "the shadow")
    assert "inside: the shadow" in await ada.click("button", "Press inside")
    assert "deeper" in await ada.click("button", "Press deeper")
    assert re.search("status .*: deeper", ada.seen)


async def test_client_side_routing(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/routes/")
    text = await ada.click("link", "List")
    assert f"Page URL: {lab.url}/routes/list\n" in text
    assert "Page Title: list - Lab" in text
    assert "View list" in ada.seen
    assert f"Page URL: {lab.url}/routes/detail?id=7\n" in await ada.click("link", "Detail")
    assert "View detail?id=7" in ada.seen
    assert f"Page URL: {lab.url}/routes/list\n" in await ada.do("navigate_back")
    assert "View list" in ada.seen
    # The site was asked once.
    assert lab.hits == ["GET 127.0.0.1/routes/"]


async def test_infinite_scroll(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/scroll")
    presses = 0
    while "Item 90\n" not in ada.seen:
        await ada.do("press_key", key="End")
        await ada.look()
        presses += 1
    assert presses == 4
    wanted = re.search(r"listitem \[ref=(\w+)\]: Item 90\n", ada.seen)
    assert wanted
    await ada.do("hover", target=wanted[1])
    requests = [f"GET 127.0.0.1/api/items?after={n}" for n in (0, 20, 40, 60, 80)]
    assert lab.hits == ["GET 127.0.0.1/scroll", *requests]


async def test_popup(ada: Agent, lab: Lab) -> None:
    await ada.do("navigate", url=f"{lab.url}/popup")
    text = await ada.click("button", "Open popup")
    assert "A new tab opened (1)." in text
    assert f"- 1: [Frame popup - Lab]({lab.url}/frame?name=popup)" in text
    assert f"Page URL: {lab.url}/popup\n" in text
    text = await ada.click("link", "New tab")
    assert "A new tab opened (2)." in text
    assert f"- 2: [Frame blank - Lab]({lab.url}/frame?name=blank)" in text
    await ada.do("tabs", action="select", index=1)
    await ada.look()
    await ada.type("Word", "popup")
    assert "heard popup" in await ada.click("button", "Tell")
    text = await ada.do("tabs", action="close")
    assert "(current)" in text
    assert "Frame popup" not in text
