"""The whole promise, with a browser: two agents stay logged in while the server between them and it is killed.

`@playwright/mcp` runs unmodified, as examples/playwright-mcp.toml configures it. Both agents open a new connection for every
call; one is the SDK's client of 2026-07-28, the other a client on mcp 1.30.
"""

from __future__ import annotations

import base64
import sqlite3
import tomllib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import psutil
import pytest
from support.gateway_process import JSON, Running, Way, serving, toml
from support.process_exit import until_gone
from support.waiting import until

from statehold.sessions.live.snapshots import decode_snapshot

pytestmark = [pytest.mark.peer, pytest.mark.fault, pytest.mark.thorough]

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "open sesame"
Older = Callable[[JSON, list[JSON]], Awaitable[list[JSON]]]
Call = tuple[str, JSON]


@pytest.fixture
def config_file(playwright_command: list[str], tmp_path: Path) -> Path:
    """The example, with the pinned package instead of npx and this machine's Chromium."""
    example = tomllib.loads((ROOT / "examples" / "playwright-mcp.toml").read_text())
    service = example["services"]["playwright"]
    service["command"], *service["args"] = playwright_command
    path = tmp_path / "statehold.toml"
    path.write_text(toml(example))
    return path


class ModernAgent:
    """An agent on the SDK's client."""

    def __init__(self, url: str, config: Path) -> None:
        self._way = Way("http", "modern", config, config.parent, url=url)

    async def use(self, *calls: Call) -> list[JSON]:
        """Make calls, each over a connection of its own, and return the results as JSON."""
        results: list[types.CallToolResult] = []
        for tool, arguments in calls:
            async with self._way.connect() as client:
                results.append(await client.call_tool(tool, arguments, 30))
        return [result.model_dump(mode="json", by_alias=True) for result in results]


class OlderAgent:
    """An agent on mcp 1.30, in an environment of its own."""

    def __init__(self, url: str, mcp130: Older) -> None:
        self._settings: JSON = {"url": f"{url}/mcp", "transport": "http", "reconnect": True}
        self._mcp130 = mcp130

    async def use(self, *calls: Call) -> list[JSON]:
        """Make calls, each over a connection of its own, and return the results as JSON."""
        commands = [
            {"do": "call", "tool": tool, "arguments": arguments} for tool, arguments in calls
        ]
        answers = await self._mcp130(self._settings, commands)
        assert all(answer["ok"] for answer in answers), answers
        return [answer["result"] for answer in answers]


Agent = ModernAgent | OlderAgent


async def logs_in(agent: Agent, name: str, site: str) -> str:
    """Log in, count twice on a page that keeps the count itself, and return the id of the session."""
    one = {"session_id": name}
    fields = [
        {"target": "#name", "name": "Name", "type": "textbox", "value": name},
        {"target": "#password", "name": "Password", "type": "textbox", "value": PASSWORD},
    ]
    count = ("browser_click", {**one, "target": "button"})
    results = await agent.use(
        ("session_create", {"name": name}),
        ("browser_navigate", {**one, "url": f"{site}/login"}),
        ("browser_fill_form", {**one, "fields": fields}),
        ("browser_click", {**one, "target": "button"}),
        ("browser_wait_for", {**one, "text": f"Logged in as {name}"}),
        ("browser_navigate", {**one, "url": f"{site}/counter"}),
        count,
        count,
        ("browser_snapshot", one),
    )
    for result in results:
        assert not result["isError"], said(result)
    assert "status [ref=" in said(results[-1])
    assert ': "2"' in said(results[-1])
    return results[0]["structuredContent"]["session_id"]


async def goes_on(agent: Agent, name: str, session: str, site: str) -> JSON:
    """Find the session by its name after the restart, check the restored and the lost parts, and return a screenshot."""
    one = {"session_id": session}
    listed, first, there, note, picture = await agent.use(
        ("session_list", {"name": name}),
        ("browser_snapshot", one),
        ("browser_navigate", {**one, "url": f"{site}/me"}),
        ("browser_snapshot", one),
        ("browser_take_screenshot", one),
    )
    [result] = listed["structuredContent"]["sessions"]
    assert (result["session_id"], result["name"], result["status"]) == (session, name, "paused")
    notice = first["content"][0]["text"]
    assert "generation 1 to 2; the server was restarted" in notice
    assert "Restored: the login (cookies and local storage)." in notice
    # A busy machine is killed before it saved the last call, which the notice then says too.
    assert (
        "open pages, what was typed into them, and session storage."
        in notice.partition("Lost: ")[2]
    )
    assert "about:blank" in said(first)
    assert "Counter" not in said(first)
    assert first["_meta"]["statehold/session"]["generation"] == 2
    assert "Note from Statehold" not in said(there)
    assert f"Logged in as {name}" in said(note)
    assert f"note of {name}" in said(note)
    return picture


def said(result: JSON) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


async def saved(data: Path, sessions: Iterable[str]) -> None:
    """Wait until the login of each session is in the database, which its recipe promises within its checkpoint."""
    await until(lambda: all(_is_saved(data, session) for session in sessions))


def _is_saved(data: Path, session: str) -> bool:
    database = next(data.glob("*.db*"))
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        rows: list[Any] = connection.execute(
            "SELECT data FROM snapshot WHERE session_id = ? ORDER BY seq DESC LIMIT 1", (session,)
        ).fetchall()
    connection.close()
    return bool(rows) and b"site_session" in decode_snapshot(rows[0][0]).blobs["login"]


def family(running: Running) -> list[psutil.Process]:
    """Return all processes that Statehold has started, directly or not."""
    return psutil.Process(running.process.pid).children(recursive=True)


@pytest.mark.timeout(120)
async def test_two_agents_stay_logged_in_when_statehold_is_killed(
    config_file: Path, login_site: str, mcp130: Older, tmp_path: Path
) -> None:
    data, sessions, pictures = tmp_path / "data", dict[str, str](), dict[str, JSON]()

    def agents(url: str) -> dict[str, Agent]:
        return {"ada": ModernAgent(url, config_file), "bob": OlderAgent(url, mcp130)}

    async def first(name: str, agent: Agent) -> None:
        sessions[name] = await logs_in(agent, name, login_site)

    async def second(name: str, agent: Agent) -> None:
        pictures[name] = await goes_on(agent, name, sessions[name], login_site)

    # Without a keeper, which would hold the processes of the browsers.
    without = {"STATEHOLD_KEEPER__LINGER_SECONDS": "0"}
    with serving(config_file, data, env=without, as_installed=True) as running:
        async with anyio.create_task_group() as tasks:
            for name, agent in agents(running.url).items():
                tasks.start_soon(first, name, agent)
        await saved(data, sessions.values())
        children = family(running)
        assert sum("chrom" in process.name() for process in children) >= 2
        running.process.kill()
        running.process.wait(10)
        await until_gone(*(child.pid for child in children))

    with serving(config_file, data, env=without) as running:
        async with anyio.create_task_group() as tasks:
            for name, agent in agents(running.url).items():
                tasks.start_soon(second, name, agent)
        children = family(running)
    await until_gone(*(child.pid for child in children))

    for name, picture in pictures.items():
        [image] = [block for block in picture["content"] if block["type"] == "image"]
        png = base64.b64decode(image["data"])
        assert png.startswith(b"\x89PNG")
        (tmp_path / f"{name}.png").write_bytes(png)


@pytest.mark.timeout(120)
async def test_an_open_page_goes_on_when_statehold_is_killed(
    config_file: Path, login_site: str, tmp_path: Path
) -> None:
    """The keeper holds the server of the browser, so that its pages do not even load again."""
    data = tmp_path / "data"
    with serving(config_file, data, as_installed=True) as running:
        session = await logs_in(ModernAgent(running.url, config_file), "ada", login_site)
        running.process.kill()
        running.process.wait(10)
    with serving(config_file, data) as running:
        agent = ModernAgent(running.url, config_file)
        [snapshot] = await agent.use(("browser_snapshot", {"session_id": session}))
        assert "Note from Statehold" not in said(snapshot)
        assert ': "2"' in said(snapshot)
