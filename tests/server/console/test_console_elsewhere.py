"""The page of a session at the console of a process that does not hold it: the picture, input, and a move of the session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from support.agent import Agent, agent
from support.console_client import ConsoleClient, ConsoleFrames, operator
from support.gateway_process import JSON, Running, Way, kill, serving
from support.selection import matrix
from support.taking_over import click, press
from support.waiting import until

FORM = (
    "data:text/html,<title>Form</title><body style='margin:0;background:rgb(0,128,0)'>"
    "<input id=name style='position:absolute;left:100px;top:100px;width:200px;height:40px'>"
)


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {"executable": headless_shell, "private": True, "checkpoint": 0.05}
    return {"services": {"browser": browser}, "timeouts": {"close_grace": 0.5}}


@pytest.fixture(scope="module")
def other(config_file: Path, server: Running) -> Generator[Running]:
    """A second process on the data folder of the server."""
    with serving(config_file, server.data) as running:
        yield running


def way_to(running: Running, config: Path) -> Way:
    return Way("http", "modern", config, running.data, url=running.url)


async def type_text(person: ConsoleClient, session: str, epoch: int, text: str) -> JSON:
    """Click into the field of FORM and type."""
    events = [*click(150, 120), *(event for letter in text for event in press(letter))]
    return await person.post(f"/sessions/{session}/input", epoch=epoch, events=events)


async def test_the_console_of_another_process_shows_a_page_and_passes_input_on(
    server: Running, other: Running, config_file: Path
) -> None:
    async with agent(way_to(server, config_file)) as ada, operator(server.data, other.url) as eve:
        await ada.said("browser_navigate", url=FORM)
        async with eve.frames(ada.session) as frames:
            about, jpeg = await frames.picture(state="live")
            assert about["tabs"][0]["url"] == FORM
            assert jpeg.startswith(b"\xff\xd8")
            path = f"/sessions/{ada.session}/input"
            refused = await eve.refused("POST", path, {"epoch": 1, "events": []})
            assert (refused["status"], refused["code"]) == (409, "control_refused")
            epoch = (await eve.act(ada.session, "take"))["epoch"]
            before = about["number"]
            assert await type_text(eve, ada.session, epoch, "Eve") == {
                "copied": None,
                "refusals": [],
            }
            newer, _ = await frames.picture(state="live")
            assert newer["number"] > before
            assert "human_in_control" in await ada.failed("browser_snapshot")
            refused = await eve.refused("POST", path, {"epoch": epoch, "events": [{"type": "x"}]})
            assert (refused["status"], refused["code"]) == (400, "invalid_argument")
            refused = await eve.refused("POST", path, {"epoch": epoch + 1, "events": []})
            assert refused["code"] == "control_refused"
            await eve.act(ada.session, "give-back", epoch=epoch)
            assert "Eve" in await ada.said("browser_snapshot")
            sockets = open_sockets(server)
        # The viewer has left, so the owner ends its exchange.
        await until(lambda: open_sockets(server) < sockets)
        async with eve.frames(ada.session, fps=1) as frames:
            await frames.picture(state="live")
            with anyio.fail_after(1):
                await eve.post("/logout")
                await frames.last()


def open_sockets(running: Running) -> int:
    return len(psutil.Process(running.process.pid).net_connections("unix"))
