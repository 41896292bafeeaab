"""The death of Chromium's network process, which holds the cookies: no login is lost, no result comes from an empty jar."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from playwright.async_api import BrowserContext
from support.browsing import Browse, new_view, opened, pid_of, process_of, running
from support.process_exit import until_gone

from statehold.sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable
from statehold.sessions.services import Snapshot
from statehold.tools.browser.devtools.world import World
from statehold.tools.browser.process.browser_process import BrowserProcess, HelperProcesses
from statehold.tools.browser.service import BrowserService
from statehold.tools.processes import procfs

pytestmark = pytest.mark.skipif(not procfs.LINUX, reason="other systems do not tell of its end")

NETWORK = "--utility-sub-type=network.mojom.NetworkService"
LOG_IN = "() => { document.cookie = 'login=1; max-age=9999' }"


def network_of(process: BrowserProcess) -> psutil.Process:
    browser = psutil.Process(pid_of(process, "browser"))
    return next(child for child in browser.children(recursive=True) if NETWORK in child.cmdline())


def kill_network(process: BrowserProcess) -> None:
    """Kill it and wait for its end, which Chromium then notices at about the same time."""
    network = network_of(process)
    network.kill()
    psutil.wait_procs([network], timeout=5)


def cookies_in(snapshot: Snapshot) -> list[str]:
    return [cookie["name"] for cookie in snapshot.data["cookies"]]


async def logged_in(browse: Browse, url: str) -> Snapshot:
    await browse.text("navigate", url=url)
    await browse.text("evaluate", function=LOG_IN)
    return await browse.saved()


@pytest.fixture
async def fresh(data: Path, shell: str) -> AsyncGenerator[BrowserService]:
    """A service that starts a new browser for each session."""
    async with running(data, shell, keep_seconds=0, caps=["storage"]) as service:
        yield service


@pytest.mark.thorough
async def test_a_login_survives_a_kill_right_after_it_was_restored(
    fresh: BrowserService, lab: str
) -> None:
    async with opened(fresh) as browse:
        snapshot = await logged_in(browse, f"{lab}/counter")
        await browse.connection.aclose()
        await until_gone(pid_of(process_of(browse), "browser"))
    async with opened(fresh, new_view(generation=2), snapshot) as browse:
        kill_network(process_of(browse))
        with anyio.fail_after(5):
            await browse.connection.lost.wait()
        for save in (browse.connection.checkpoint, browse.connection.snapshot):
            with pytest.raises(ConnectionLost):
                await save()
    async with opened(fresh, new_view(generation=3), snapshot) as browse:
        assert "login=1" in await browse.text("evaluate", function="() => document.cookie")


@pytest.mark.thorough
async def test_a_browser_that_loses_its_cookies_while_they_are_restored_is_replaced(
    data: Path, shell: str, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[BrowserProcess] = []
    run = World.run

    async def kill_once(self: World, function: str, *arguments: object) -> Any:
        if function == "restorePage" and not killed:
            killed.append(process)
            kill_network(process)
        return await run(self, function, *arguments)

    async with running(data, shell, keep_seconds=60) as service:
        async with opened(service) as browse:
            await logged_in(browse, f"{lab}/frame?name=one")
            await browse.text("type", target="#word", text="typed")
            snapshot, process = await browse.saved(), process_of(browse)
        monkeypatch.setattr(World, "run", kill_once)
        async with opened(service, new_view(generation=2), snapshot) as browse:
            assert killed == [process]
            assert process_of(browse) is not process
            assert "login=1" in await browse.text("evaluate", function="() => document.cookie")


async def test_no_call_is_answered_by_a_browser_that_lost_its_cookies(
    fresh: BrowserService, lab: str
) -> None:
    async with opened(fresh) as browse:
        await logged_in(browse, f"{lab}/counter")
        kill_network(process_of(browse))
        with anyio.fail_after(10), pytest.raises(ConnectionLost):
            await browse.call("navigate", url=f"{lab}/counter")


@pytest.mark.thorough
async def test_a_call_that_sees_the_cookies_vanish_has_an_unknown_outcome(
    fresh: BrowserService, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(fresh) as browse:
        await logged_in(browse, f"{lab}/counter")
        cookies = BrowserContext.cookies

        async def vanish(self: BrowserContext, *urls: Any) -> Any:
            kill_network(process_of(browse))
            # Playwright's answer comes from the new process, which has none.
            jar = await cookies(self, *urls)
            assert jar == []
            return jar

        monkeypatch.setattr(BrowserContext, "cookies", vanish)
        with anyio.fail_after(10), pytest.raises(OutcomeUnknown, match="network process"):
            await browse.call("cookie_list")


@pytest.mark.thorough
async def test_an_empty_jar_replaces_a_full_one_only_when_the_browser_is_known_to_be_whole(
    data: Path, shell: str, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(self: HelperProcesses, *, within: float) -> list[tuple[str, int]]:
        return []

    async with running(data, shell, caps=["storage"]) as service:
        with monkeypatch.context() as patch:
            patch.setattr(HelperProcesses, "list_processes", silent)
            async with opened(service) as browse:
                snapshot = await logged_in(browse, f"{lab}/counter")
                await browse.text("cookie_clear")
                with pytest.raises(ServiceUnavailable, match="cookies"):
                    await browse.connection.snapshot()
                assert browse.connection.unsaved
            async with opened(service, browse.next_view(), snapshot) as browse:
                await browse.text("cookie_clear")
                with pytest.raises(ServiceUnavailable, match="cookies"):
                    await browse.connection.checkpoint()
                patch.undo()
                assert cookies_in(await browse.saved()) == []
