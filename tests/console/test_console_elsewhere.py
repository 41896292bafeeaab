"""The page of a session at the console of a process that does not hold it: the picture, input, and a move of the session."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import anyio
import psutil
import pytest
from lab import Lab
from playwright.async_api import Browser, Route
from support.agent import agent
from support.console_client import console_address, operator
from support.gateway_process import JSON, Running, kill, serving
from support.selection import matrix
from support.waiting import until
from support.watching import SPELLED, type_again_and_hand_back, type_text, way_to

from statehold.server.config.load import load
from statehold.server.process.gateway import open_gateway
from statehold.sessions.records import LOCAL


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {"executable": headless_shell, "private": True, "checkpoint": 0.05}
    return {"services": {"browser": browser}, "timeouts": {"close_grace": 0.5}}


@pytest.fixture(scope="module")
def other(config_file: Path, server: Running) -> Generator[Running]:
    """A second process on the data folder of the server."""
    with serving(config_file, server.data) as running:
        yield running


@pytest.mark.thorough
async def test_the_console_of_another_process_shows_a_page_and_passes_input_on(
    server: Running, other: Running, config_file: Path, lab_site: Lab
) -> None:
    url = f"{lab_site.url}/keys"
    async with agent(way_to(server, config_file)) as ada, operator(server.data, other.url) as eve:
        await ada.said("browser_navigate", url=url)
        async with eve.frames(ada.session) as frames:
            about, jpeg = await frames.picture(state="live")
            assert about["tabs"][0]["url"] == url
            assert jpeg.startswith(b"\xff\xd8")
            path = f"/sessions/{ada.session}/input"
            refused = await eve.refused("POST", path, {"epoch": 1, "events": []})
            assert (refused["status"], refused["code"]) == (409, "control_refused")
            epoch = (await eve.act(ada.session, "take"))["epoch"]
            before = about["number"]
            assert await type_text(eve, ada.session, epoch, "Eve") == {
                "copied": None,
                "refusals": [],
                "editing": None,
                "field": None,
            }
            newer, _ = await frames.picture(state="live")
            assert newer["number"] > before
            assert "human_in_control" in await ada.failed("browser_snapshot")
            refused = await eve.refused("POST", path, {"epoch": epoch, "events": [{"type": "x"}]})
            assert (refused["status"], refused["code"]) == (400, "invalid_argument")
            refused = await eve.refused("POST", path, {"epoch": epoch + 1, "events": []})
            assert refused["code"] == "control_refused"
            await eve.act(ada.session, "give-back", epoch=epoch)
            assert "E-v-e" in await ada.said("browser_evaluate", function=SPELLED)
            assert "Eve" not in await ada.said("browser_snapshot")
            sockets = open_sockets(server)
        # The viewer has left, so the owner ends its exchange.
        await until(lambda: open_sockets(server) < sockets)
        async with eve.frames(ada.session, fps=1) as frames:
            await frames.picture(state="live")
            await eve.act(ada.session, "pause")
            assert (await frames.last())["state"] == "moved"
        refused = await eve.refused("GET", f"/sessions/{ada.session}/frames")
        assert (refused["status"], refused["message"]) == (409, "The session is paused.")
        await ada.said("browser_snapshot")
        async with eve.frames(ada.session, fps=1) as frames:
            await frames.picture(state="live")
            with anyio.fail_after(1):
                await eve.post("/logout")
                await frames.last()


def open_sockets(running: Running) -> int:
    return len(psutil.Process(running.process.pid).net_connections("unix"))


@pytest.mark.thorough
async def test_a_process_that_answers_no_others_shows_its_sessions_to_nobody(
    config_file: Path, server: Running
) -> None:
    config = load(config=config_file, services=None, flags={"data": str(server.data)})
    async with open_gateway(config, address="a command") as gateway, operator(server.data) as eve:
        session = await gateway.registry.create(LOCAL)
        path = f"/sessions/{session.id}"
        for method, route in (("GET", "frames"), ("POST", "actions/take")):
            refused = await eve.refused(method, f"{path}/{route}")
            assert (refused["status"], refused["code"]) == (503, "service_unavailable")
            assert "does not answer" in refused["message"]
            assert "If it is a command" in refused["recovery"]


@pytest.mark.thorough
@pytest.mark.parametrize("end", matrix("kill", "drain"))
async def test_a_person_keeps_control_when_the_owner_ends(
    end: str, config_file: Path, other: Running, server: Running, lab_site: Lab
) -> None:
    url = f"{lab_site.url}/keys"
    with serving(config_file, server.data) as owner:
        async with agent(way_to(owner, config_file)) as ada:
            await ada.said("browser_navigate", url=url)
            async with operator(server.data, other.url) as eve:
                epoch = (await eve.act(ada.session, "take"))["epoch"]
                async with eve.frames(ada.session) as frames:
                    await frames.picture(state="live")
                    if end == "kill":
                        kill(owner)
                    else:
                        await anyio.to_thread.run_sync(owner.stop)
                    assert (await frames.last())["state"] == "moved"
                way = way_to(other, config_file)
                await type_again_and_hand_back(eve, ada.session, epoch, way, url)


async def answer_paused(route: Route) -> None:
    """Answer as the server does, but for the status of the session."""
    response = await route.fetch()
    await route.fulfill(response=response, json={**await response.json(), "status": "paused"})


@pytest.mark.thorough
async def test_the_page_connects_again_when_the_owner_is_killed(
    config_file: Path, other: Running, server: Running, lab_site: Lab, browser: Browser
) -> None:
    with serving(config_file, server.data) as owner:
        async with agent(way_to(owner, config_file), name="moving") as ada:
            await ada.said("browser_navigate", url=f"{lab_site.url}/keys")
            page = await browser.new_page(viewport={"width": 1440, "height": 900})
            await page.goto(console_address(server.data, other.url))
            await page.get_by_role("link", name="moving").click()
            await page.get_by_role("button", name="Take over").click()
            await page.get_by_text("You have control.").wait_for()
            veil = page.locator("sh-screen .veil")
            await page.locator("sh-screen .picture:not(.stale)").wait_for()
            # The session is stored as paused until it has come up again.
            await page.route(f"**/api/v1/sessions/{ada.session}", answer_paused)
            await page.get_by_role("button", name="Resume").wait_for()
            assert await page.get_by_text("You have control.").is_visible()
            await page.unroute_all(behavior="wait")
            kill(owner)
            await veil.get_by_text("moves to another process. Picture is").wait_for()
            await veil.wait_for(state="detached")
            await page.get_by_text("It moved: it is open in").wait_for()
            assert await page.get_by_text("You have control.").is_visible()
            await page.keyboard.press("Tab")
            await page.keyboard.type("Eve")
            await page.get_by_role("button", name="Done").click()
            await page.get_by_role("button", name="Take over").wait_for()
            async with agent(way_to(other, config_file), ada.session) as bob:
                assert "E-v-e" in await bob.said("browser_evaluate", function=SPELLED)
