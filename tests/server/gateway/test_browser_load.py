"""Many browser sessions at once through real clients: none sees another's, none is lost, and nothing is left of them."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from lab import Lab
from support.agent import (
    NOTE,
    Agent,
    find_process,
    is_browser,
    is_browser_host,
    is_driver,
    memory_of,
    saved_text,
    tree_of,
)
from support.gateway_process import JSON, Running, Way, code_of, opened_session, serving, structured
from support.node_memory import CONTEXT_CLASS, INSPECTABLE, collect_garbage, count_objects
from support.waiting import until

pytestmark = [pytest.mark.load, pytest.mark.peer, pytest.mark.fault]

SESSIONS, CLIENTS = 50, 5
KILLED = 10
CYCLES, AT_ONCE = 200, 10
WARM_UP = 150
"""Cycles before the first measurement. Python collects all garbage about every 100 cycles; until then memory grows."""
SETTLES = 3.0
GROWN = 1.05
"""The ratio by which memory may have grown after all cycles."""

FIELD = "() => document.querySelector('#word').value"
DOWNLOAD = """name => { const link = document.createElement("a"); link.download = name + ".txt";
  link.href = URL.createObjectURL(new Blob([name])); link.click(); }"""


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {"executable": headless_shell, "checkpoint": 1, "caps": ["storage"]}
    return {"recovery": {"backoff": [0.05, 1, 5]}, "services": {"browser": browser}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("load")


@pytest.fixture(scope="module")
def server(config_file: Path, data: Path) -> Generator[Running]:
    with serving(config_file, data, env=INSPECTABLE) as running:
        yield running


@pytest.fixture(scope="module")
def lab() -> Generator[Lab]:
    with Lab() as site:
        yield site


@pytest.fixture
async def agents(server: Running, data: Path) -> AsyncGenerator[list[Agent]]:
    """Agents in separate sessions, over a few connections of both eras. Their sessions are closed at the end."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                Way(
                    "http", ("modern", "legacy")[number % 2], Path(), data, url=server.url
                ).connect()
            )
            for number in range(CLIENTS)
        ]
        opened = [
            Agent(clients[number % CLIENTS], await opened_session(clients[number % CLIENTS]))
            for number in range(SESSIONS)
        ]
        yield opened
        for one in opened:
            structured(await one.call("session_close", force=True))


@dataclass
class Owner:
    """The actions of one session, and the content that it must and must not see."""

    agent: Agent
    name: str
    site: str

    async def live(self) -> None:
        """Make twenty calls, and check each result for the content of another session."""
        name, agent = self.name, self.agent
        await self.sees("navigate", url=f"{self.site}/frame?name={name}")
        await self.sees("evaluate", function=f"() => {{ document.cookie = 'who={name}' }}")
        await self.sees("evaluate", function=f"() => localStorage.setItem('who', '{name}')")
        await self.sees("evaluate", function=f"() => console.error('by {name}')")
        await self.sees("type", target="#word", text=f"copied by {name}")
        await self.sees("press_key", key="Control+a")
        await self.sees("press_key", key="Control+c")
        await self.sees("tabs", action="new", url=f"{self.site}/frame?name={name}-second")
        listed = await self.sees("tabs", action="list")
        assert listed.count("/frame?name=") >= 2
        cookies = await self.sees("cookie_list")
        assert f"who={name}" in cookies
        stored = await self.sees("localstorage_list")
        assert f"who={name}" in stored
        cookie = await self.sees("evaluate", function="() => document.cookie")
        assert cookie.count(f"who={name}") == 1
        text = await self.sees("evaluate", function=f"() => ({DOWNLOAD})('{name}')")
        while f"Downloaded file {name}.txt" not in text:
            text = await self.sees("wait_for", time=0.1)
        await self.sees("tabs", action="select", index=0)
        console = await self.sees("console_messages", level="error")
        assert console.count("by ") == 1
        await self.sees("type", target="#word", text="")
        await self.sees("press_key", key="Control+v")
        assert f"copied by {name}" in await self.sees("evaluate", function=FIELD)
        assert f"Frame {name}" in await self.sees("snapshot")
        await self.sees("find", text="Frame")
        uri = f"session://{agent.session}/browser/files/{name}.txt"
        [content] = (await agent.client.read_resource(uri)).contents
        assert getattr(content, "text", "") == name

    async def sees(self, tool: str, **arguments: Any) -> str:
        text = await self.agent.said(f"browser_{tool}", **arguments)
        others = set(re.findall(r"owner\d\d", text)) - {self.name}
        assert not others, f"{self.name} sees {others} in\n{text}"
        return text


@pytest.mark.timeout(120)
async def test_fifty_sessions_at_once_see_nothing_of_each_other(
    agents: list[Agent], lab: Lab
) -> None:
    owners = [Owner(one, f"owner{n:02}", lab.url) for n, one in enumerate(agents)]
    async with anyio.create_task_group() as tasks:
        for owner in owners:
            tasks.start_soon(owner.live)
    assert all(len(one.heard) >= 20 for one in agents)


async def log_in(one: Agent, site: str, number: int) -> None:
    await one.said("browser_navigate", url=f"{site}/frame?name=login{number}")
    script = f"""() => {{ document.cookie = "login=cookie{number}; max-age=3600";
        localStorage.setItem("login", "storage{number}"); sessionStorage.setItem("login", "tab{number}"); }}"""
    await one.said("browser_evaluate", function=script)


FOREVER = "async () => { await fetch('/api/open/flying%d'); await new Promise(() => {}) }"
LOGINS = """() => [document.cookie, localStorage.getItem('login'), sessionStorage.getItem('login'),
  location.href].join(' ')"""


async def test_a_browser_killed_under_ten_sessions_costs_each_one_call_and_no_login(
    agents: list[Agent], lab: Lab, server: Running, data: Path
) -> None:
    agents = agents[:KILLED]
    async with anyio.create_task_group() as tasks:
        for number, one in enumerate(agents):
            tasks.start_soon(log_in, one, lab.url, number)
    for number, one in enumerate(agents):
        words = (f"cookie{number}", f"storage{number}", f"tab{number}")
        await until(lambda: all(word in saved_text(data, one.session) for word in words))  # noqa: B023

    codes: Counter[str] = Counter()

    async def fly(one: Agent, number: int) -> None:
        codes[code_of(await one.call("browser_evaluate", function=FOREVER % number))] += 1

    async with anyio.create_task_group() as tasks:
        for number, one in enumerate(agents):
            tasks.start_soon(fly, one, number)
        await lab.hits.wait_for("/api/open/flying", count=KILLED)
        os.kill(find_process(server, is_browser).pid, signal.SIGKILL)
        tasks.cancel_scope.deadline = anyio.current_time() + 10
    assert codes == {"outcome_unknown": KILLED}

    async def come_back(one: Agent, number: int) -> None:
        one.heard.clear()
        text = await one.said("browser_evaluate", function=LOGINS)
        address = f"{lab.url}/frame?name=login{number}"
        assert f"login=cookie{number} storage{number} tab{number} {address}" in text
        assert f"- Page URL: {address}\n" in await one.said("browser_snapshot")
        [note] = [text for text in one.heard if NOTE in text]
        assert "the browser ended" in note
        assert "Restored: 1 tab, 1 cookie, the storage of 1 site" in note

    async with anyio.create_task_group() as tasks:
        for number, one in enumerate(agents):
            tasks.start_soon(come_back, one, number)


@dataclass(frozen=True)
class ResourceUse:
    """The processes, descriptors, folders and memory of a server."""

    processes: int
    descriptors: int
    folders: int
    memory: int

    @staticmethod
    def by(server: Running, data: Path) -> ResourceUse:
        tree = tree_of(server)
        return ResourceUse(
            len(tree), tree[0].num_fds(), folders_of(server, data), memory_of(server)
        )


def folders_of(server: Running, data: Path) -> int:
    """Count the folders of a server's drivers, and those in its data folder except the folders of session files."""
    scratch = {data / "browser" / "temporary"}
    for process in tree_of(server)[1:]:
        with suppress(OSError):
            words = Path(f"/proc/{process.pid}/environ").read_text("utf-8", "replace").split("\0")
            scratch |= {Path(word[7:]) for word in words if word.startswith("TMPDIR=")}
    return sum(1 for folder in scratch for path in folder.rglob("*") if path.is_dir())


@pytest.mark.timeout(180)
async def test_cycles_of_opening_and_closing_leave_everything_as_it_was(
    server: Running, data: Path, lab: Lab
) -> None:
    way = Way("http", "modern", Path(), data, url=server.url)
    async with way.connect() as client:
        # This session stays, so that the resources it shares with the others count before and after.
        first = Agent(client, await opened_session(client))
        await first.said("browser_navigate", url=f"{lab.url}/frame")
        slots = anyio.Semaphore(AT_ONCE)

        async def cycle() -> None:
            async with slots:
                one = Agent(client, await opened_session(client))
                await one.said("browser_navigate", url=f"{lab.url}/frame")
                structured(await one.call("session_close"))

        async def cycles(number: int) -> ResourceUse:
            async with anyio.create_task_group() as tasks:
                for _ in range(number):
                    tasks.start_soon(cycle)
            # A browser keeps a renderer for the next page a little longer than the last one.
            with suppress(TimeoutError):
                await until(lambda: len(tree_of(server)) <= idle, within=SETTLES)
            for is_node in (is_driver, is_browser_host):
                await collect_garbage(find_process(server, is_node))
            return ResourceUse.by(server, data)

        idle = len(tree_of(server))
        warm = await cycles(WARM_UP)
        after = await cycles(CYCLES)
        assert after.processes <= warm.processes
        assert after.descriptors <= warm.descriptors
        assert after.folders <= warm.folders
        assert after.memory <= warm.memory * GROWN, f"{warm}, then {after}"

        async def has_one_context() -> bool:
            # That of the first session. The answer of a close comes before the host has dropped its context.
            host = find_process(server, is_browser_host)
            await collect_garbage(host)
            return await count_objects(host, CONTEXT_CLASS) == 1

        await until(has_one_context)
        structured(await first.call("session_close"))
