"""A server that is killed and started again: the open pages of its sessions outlive it."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.agent import Agent, is_browser
from support.counting_site import counting_site
from support.gateway_process import Running, Way, kill, opened_session, serving, structured, toml
from support.order_site import Protocol, order_site
from support.process_exit import until_gone
from support.selection import matrix
from support.waiting import until

from statehold.tools.processes.keeper_command import KeeperCommand, KeptChild

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("fork_server"),
]


@pytest.fixture
def site() -> Generator[str]:
    with counting_site() as site:
        yield site.url


class Restarts:
    """A server with a browser, to be killed and started again."""

    def __init__(self, folder: Path, executable: str) -> None:
        self.data = folder / "data"
        self.config = folder / "statehold.toml"
        browser = {
            "executable": executable,
            "outlive": True,
            "private": True,
            "caps": ["network"],
            "ignore_https_errors": True,
        }
        self.config.write_text(toml({"services": {"browser": browser}}))

    def serve(self) -> Any:
        return serving(self.config, self.data)

    def connect(self, server: Running) -> Any:
        return Way("http", "modern", self.config, self.data, url=server.url).connect()

    async def children(self) -> Sequence[KeptChild]:
        """Return what the keeper holds."""
        with closing(KeeperCommand(self.data)) as keeper:
            return keeper.status().children

    def keeper(self) -> psutil.Process | None:
        """Return the keeper of the data folder."""
        for process in psutil.process_iter(["cmdline"]):
            line: list[str] = process.info["cmdline"] or []
            if "-I" in line and str(self.data) in line:
                return process
        return None


@pytest.fixture
def restarts(tmp_path: Path, headless_shell: str) -> Generator[Restarts]:
    restarts = Restarts(tmp_path, headless_shell)
    yield restarts
    if (keeper := restarts.keeper()) is not None:
        keeper.kill()


async def orphan_browser_session(restarts: Restarts, site: str) -> str:
    """Return a session on a page of the site, whose server was killed."""
    with restarts.serve() as server:
        async with restarts.connect(server) as client:
            session = await opened_session(client)
            await Agent(client, session).said("browser_navigate", url=site)
            kill(server)
    return session


def ref_of(snapshot: str, name: str) -> str:
    line = next(line for line in snapshot.splitlines() if name in line)
    return line.partition("[ref=")[2].partition("]")[0]


@pytest.mark.parametrize("kills", matrix(1, 2))
async def test_pages_go_on_where_they_were(restarts: Restarts, site: str, kills: int) -> None:
    with restarts.serve() as server:
        async with restarts.connect(server) as client:
            session = await opened_session(client)
            agent = Agent(client, session)
            await agent.said("browser_navigate", url=site)
            snapshot = await agent.said("browser_snapshot")
            add, name = ref_of(snapshot, "Add"), ref_of(snapshot, "Name")
            await agent.said("browser_click", target=add)
            await agent.said("browser_type", target=name, text="half a na")
            await agent.evaluate("scrollTo(0, 700)")
            await agent.said("browser_tabs", action="new", url=f"{site}second")
            await agent.said("browser_tabs", action="select", index=0)
            await agent.said("browser_route", pattern="**/never", status=404)
            kill(server)
    for clicks, scroll in ((1, 700), (2, 0))[:kills]:
        with restarts.serve() as server:
            async with restarts.connect(server) as client:
                agent = Agent(client, session)
                state = "[clicks, scrollY, document.cookie, document.querySelector('input').value, failed]"
                shown = await agent.evaluate(f"JSON.stringify({state})")
                assert "Note from Statehold" not in shown
                # The scripted answers belonged to the driver of the killed server.
                assert ("Ended when the server started again: " in shown) == (clicks == 1)
                *page, failed = json.loads(json.loads(shown.splitlines()[1]))
                assert page == [clicks, scroll, "login=ok", "half a na"]
                # Those fail that were cut off, or that waited for the next server.
                assert failed <= 2 * clicks
                await agent.said("browser_click", target=add)
                tabs = await agent.said("browser_tabs", action="list")
                assert "0: (current)" in tabs
                assert "/second" in tabs
                info = structured(await client.call_tool("session_info", {"session_id": session}))
                assert (info["status"], info["generation"]) == ("idle", 1)
                kill(server)


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", matrix("http", "https", "h2"))
async def test_an_order_that_a_kill_cuts_off_is_not_repeated(
    restarts: Restarts, tmp_path: Path, protocol: Protocol
) -> None:
    """Chromium repeats a POST by itself when its connection, which was used before, ends without an answer."""
    with order_site(tmp_path, protocol) as site:
        with restarts.serve() as server:
            async with restarts.connect(server) as client:
                session = await opened_session(client)
                agent = Agent(client, session)
                await agent.said("browser_navigate", url=site.url)
                await agent.evaluate("order('1', '/order')")
                await until(lambda: site.orders == ["1"])
                kill(server)
        with restarts.serve() as server:
            async with restarts.connect(server) as client:
                agent = Agent(client, session)
                shown = await agent.evaluate("outcomes['1']")
                assert '"failed"' in shown
                assert f"Could not reach {site.url.partition('://')[2]}" in shown
                assert site.orders == ["1"]
                await agent.evaluate("order('2', '/now')")
                assert '"done"' in await agent.evaluate("outcomes['2']")
                assert site.orders == ["1", "2"]
                kill(server)


@pytest.mark.thorough
async def test_a_browser_is_taken_over_without_a_call(restarts: Restarts, site: str) -> None:
    await orphan_browser_session(restarts, site)
    with restarts.serve() as server:

        async def has_node() -> bool:
            return (await restarts.children())[0].has_node

        await until(has_node)
        kill(server)


@pytest.mark.thorough
async def test_a_closed_session_leaves_no_browser(restarts: Restarts, site: str) -> None:
    session = await orphan_browser_session(restarts, site)
    keeper = restarts.keeper()
    assert keeper is not None
    browsers = [process for process in keeper.children(recursive=True) if is_browser(process)]
    assert browsers
    with restarts.serve() as server:
        async with restarts.connect(server) as client:
            await client.call_tool("session_close", {"session_id": session})
        assert server.stop() == 0
    await until_gone(*[process.pid for process in browsers])
    assert list((restarts.data / "browser" / "contexts").rglob("*.json")) == []


@pytest.mark.thorough
async def test_a_browser_that_ended_meanwhile_comes_back_from_its_snapshot(
    restarts: Restarts, site: str
) -> None:
    with restarts.serve() as server:
        async with restarts.connect(server) as client:
            session = await opened_session(client)
            agent = Agent(client, session)
            await agent.said("browser_navigate", url=site)
            # Saves the session.
            await client.call_tool("session_pause", {"session_id": session})
            await agent.said("browser_snapshot")
            kill(server)
    keeper = restarts.keeper()
    assert keeper is not None
    for process in keeper.children():
        process.kill()
    with restarts.serve() as server:
        async with restarts.connect(server) as client:
            agent = Agent(client, session)
            assert "Note from Statehold" in await agent.said("browser_snapshot")
            assert "login=ok" in await agent.evaluate("document.cookie")
