"""A person takes over the browser of a session whose agent asks for it, through real clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from lab import Lab
from mcp import Client
from support.agent import NOTE, Agent, agent, text_of
from support.gateway_process import JSON, Way, code_of, structured
from support.selection import matrix_of
from support.taking_over import press
from support.waiting import until

from statehold.server.config.load import load
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.sessions.records import LOCAL, ControlEnd
from statehold.sessions.transitions.control import ControlGrant
from statehold.tools.browser.connection import BrowserConnection
from statehold.tools.browser.input.events import InputBatch, InputOutcome

WAYS = matrix_of([("memory", "modern"), ("memory", "legacy")])
PASSWORD = "correct horse battery"
PAGE = (
    "data:text/html,<title>Login</title><form><label>Name<input id=name></label>"
    "<label>Password<input id=password type=password></label><button>Go</button></form>"
    "<script>password.oninput=()=>console.error('typed '+password.value)</script>"
)


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    browser = {
        "executable": headless_shell,
        "checkpoint": 0.05,
        "caps": ["devtools", "vision"],
        "save_session": True,
        "private": True,
    }
    return {"services": {"browser": browser}}


def browser_of(gateway: Gateway, ada: Agent) -> BrowserConnection:
    live = next(s for s in gateway.registry.owned_sessions() if s.id == ada.session)
    connection = live.bindings["browser"].live
    assert connection is not None
    return cast("BrowserConnection", connection.connection)


def page_of(gateway: Gateway, ada: Agent) -> Any:
    """Return the page that a person sees."""
    return browser_of(gateway, ada).session.context.pages[0]


async def act(gateway: Gateway, ada: Agent, grant: ControlGrant, *events: JSON) -> InputOutcome:
    """Do what a person does in a viewer who has this grant."""
    batch = InputBatch.model_validate({"epoch": grant.epoch, "events": list(events)})
    return await browser_of(gateway, ada).human_control.send(batch, grant)


def driver_of(gateway: Gateway, ada: Agent) -> str:
    live = next(s for s in gateway.registry.owned_sessions() if s.id == ada.session)
    return live.record.control.driver


async def take(gateway: Gateway, ada: Agent) -> int:
    session = await gateway.registry.controls.take(LOCAL, ada.session, "eve at the console")
    return session.record.control.epoch


async def test_the_agent_waits_for_a_person_and_goes_on_with_the_changed_page(
    way: Way, gateway: Gateway, lab_site: Lab
) -> None:
    heard: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with agent(way) as ada, anyio.create_task_group() as tasks:
        await ada.said("browser_navigate", url=PAGE)
        answers: list[JSON] = []

        async def ask() -> None:
            arguments = {"session_id": ada.session, "reason": "log in", "wait_seconds": 30}
            result = await ada.client.call_tool(
                "session_request_human", arguments, progress_callback=on_progress
            )
            answers.append({**structured(result), "text": text_of(result)})

        tasks.start_soon(ask)
        await until(lambda: driver_of(gateway, ada) == "requested")
        if way.era == "legacy":
            await until(lambda: heard)
            assert heard[0] == "A person is asked"
        epoch = await take(gateway, ada)
        for tool in ("browser_snapshot", "browser_take_screenshot", "session_restart"):
            refused = await ada.call(tool)
            assert code_of(refused) == "human_in_control"
            assert "log in" in text_of(refused)
        info = structured(await ada.call("session_info"))
        assert info["control"]["driver"] == "human"
        await page_of(gateway, ada).goto(f"{lab_site.url}/counter")
        await gateway.registry.controls.give_back(
            LOCAL, ada.session, epoch, end=ControlEnd.DONE, reply="the code was 12"
        )
        await until(lambda: answers)
        assert answers[0]["control"]["reply"] == "the code was 12"
        assert answers[0]["address"] == f"statehold sessions open {ada.session}"
        assert NOTE in answers[0]["text"]
        assert f"and is {lab_site.url}/counter." in answers[0]["text"]
        answer = await ada.said("browser_snapshot")
        assert NOTE not in answer
        assert "Counter - Lab" in answer


async def test_a_request_after_the_hand_back_returns_it_once_and_asks_nobody(
    way: Way, gateway: Gateway
) -> None:
    """A person hands back between two calls of the tool, as most do while a model thinks."""
    async with agent(way) as ada:
        await ada.said("browser_navigate", url=PAGE)
        ask: JSON = {"reason": "type the code", "wait_seconds": 0}
        assert (
            "Nobody came" in structured(await ada.call("session_request_human", **ask))["next_step"]
        )
        epoch = await take(gateway, ada)
        await gateway.registry.controls.give_back(LOCAL, ada.session, epoch, reply="it was 12")
        result = await ada.call("session_request_human", **ask)
        control = structured(result)["control"]
        assert (control["driver"], control["end"], control["reply"]) == (
            "agent",
            "done",
            "it was 12",
        )
        assert NOTE in text_of(result)
        assert driver_of(gateway, ada) == "agent"
        assert NOTE not in await ada.said("browser_snapshot")
        asked = structured(await ada.call("session_request_human", **ask))
        assert asked["control"]["driver"] == "requested"


async def test_refs_of_before_are_invalid_after_the_hand_back(way: Way, gateway: Gateway) -> None:
    async with agent(way) as ada:
        shown = await ada.said("browser_navigate", url=PAGE)
        ref = shown.partition('button "Go" [ref=')[2].partition("]")[0]
        assert ref
        epoch = await take(gateway, ada)
        await gateway.registry.controls.give_back(LOCAL, ada.session, epoch)
        refused = await ada.failed("browser_click", target=ref)
        assert "is of a snapshot from before a person had control" in refused
        fresh = refused.partition('button "Go" [ref=')[2].partition("]")[0]
        await ada.said("browser_click", target=fresh)


async def test_nothing_that_a_person_types_is_kept_or_shown(
    headless_shell: str, settings: JSON, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    services = {"browser": {**settings["services"]["browser"], "executable": headless_shell}}
    config = load(config=None, services=None, flags={"data": str(data), "services": services})
    async with open_gateway(config, address="test") as gateway:
        from statehold.server.protocol.server import StateholdServer

        async with Client(StateholdServer(gateway, version="0"), cache=None) as client:
            created = structured(await client.call_tool("session_create", {}))
            ada = Agent(client, created["session_id"])
            await ada.said("browser_navigate", url=PAGE)
            await ada.said("browser_start_tracing")
            epoch = await take(gateway, ada)
            page = page_of(gateway, ada)
            grant = await gateway.registry.controls.grant(LOCAL, ada.session, epoch)
            await page.focus("#password")
            async with browser_of(gateway, ada).screencast.watch() as viewer:
                await anext(viewer)
                for letter in PASSWORD:
                    await act(gateway, ada, grant, *press(letter))
                await page.focus("#name")
                await act(gateway, ada, grant, {"type": "paste", "text": PASSWORD})
                await page.fill("#name", "")
                await act(gateway, ada, grant, {"type": "composition", "text": PASSWORD})
                await act(gateway, ada, grant, {"type": "composition", "text": ""})
                await anext(viewer)
            assert await page.input_value("#password") == PASSWORD
            await page.evaluate(
                "value => fetch('http://127.0.0.1:9/', {method: 'POST', body: value}).catch(() => 0)",
                PASSWORD,
            )
            await gateway.registry.controls.give_back(LOCAL, ada.session, epoch)
            for tool in (
                "browser_snapshot",
                "browser_console_messages",
                "browser_network_requests",
                "session_history",
            ):
                await ada.said(tool)
            await ada.failed("browser_stop_tracing")
            await client.call_tool("session_pause", {"session_id": ada.session})
        assert "The trace ended when a person took control" in "\n".join(ada.heard)
        for answer in ada.heard:
            assert PASSWORD not in answer
    files = [path for path in data.rglob("*") if path.is_file()]
    assert any(path.name == "session.md" for path in files)
    assert any(path.suffix == ".zip" for path in files)
    for path in files:
        content = path.read_bytes()
        assert PASSWORD.encode() not in content, path
        assert PASSWORD.replace(" ", "%20").encode() not in content, path
