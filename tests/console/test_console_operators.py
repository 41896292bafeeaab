"""Operators at the console: they see and close sessions of others without their content."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from mcp import Client
from playwright.async_api import Browser
from support.console_client import ConsoleClient, console_client
from support.gateway_process import JSON, Running, Way, opened_session, service
from support.token_file import token_lines, write_tokens
from support.waiting import until

from statehold.console.app import ROUTES
from statehold.console.routes import PREFIX, ApiRoute
from statehold.shell.main import main

ALICE, OLGA, ADA = "alice-token-0123456789", "olga-token-0123456789a", "ada-token-0123456789ab"
NUMBERS = itertools.count()
SECRET = "xyzzy"
"""A word in everything that is content of Alice's session."""
BODIES: dict[str, JSON] = {
    "input": {"epoch": 1, "events": []},
    "act_renew": {"epoch": 1},
    "add_key": {"name": "shop", "value": "key-of-olga-0123"},
    "act_cancel_call": {"task_id": "sh_x.task-1"},
    "act_give_back": {"epoch": 1},
    "log_in": {"login": "shop"},
    "accept_changes": {"changes": []},
    "decide_approval": {"decision": "refuse"},
}
"""The bodies of routes that need members."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    return write_tokens(path, f"{ALICE} alice\n{OLGA} olga role=operator\n{ADA} ada role=admin\n")


@pytest.fixture(scope="module")
def settings(tokens: Path) -> JSON:
    return {
        "server": {"tokens": str(tokens)},
        "audit": "on",
        "toolsets": ["core", "lifecycle", "state", "history"],
        "services": {"quick": service("asking")},
    }


@pytest.fixture
async def olga(server: Running) -> AsyncGenerator[ConsoleClient]:
    async with console_client(server.url) as client:
        await client.log_in(token=OLGA)
        yield client


@pytest.fixture
async def olga_agent(server: Running, config_file: Path) -> AsyncGenerator[Client]:
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with way.connect(headers={"authorization": f"Bearer {OLGA}"}) as client:
        yield client


async def filled_session(agent: Client) -> str:
    """Return a session of Alice with content of every kind."""
    metadata = {"purpose": SECRET, "k": SECRET}
    session = await opened_session(
        agent, name=f"{SECRET} {next(NUMBERS)}", metadata=metadata, services=["quick"]
    )
    own = {"session_id": session}
    await agent.call_tool("state_update", {**own, "values": {"k": SECRET}})
    await agent.call_tool("session_note", {**own, "role": "user", "content": SECRET})
    await agent.call_tool("echo", {**own, "text": SECRET})
    await agent.call_tool("session_request_human", {**own, "reason": SECRET, "wait_seconds": 0})
    return session


async def send(client: ConsoleClient, route: ApiRoute, session: str) -> tuple[int, str]:
    """Return the status and the text of the answer to a request for a session."""
    path = route.full_path.replace("{session_id}", session).replace("{service}", "quick")
    path = re.sub(r"\{\w+\}", "1", path)
    body = None if route.method == "GET" else BODIES.get(route.name, {})
    answer = await client.send(route.method, path.removeprefix(PREFIX), body)
    return answer.status_code, answer.text


async def test_an_operator_finds_no_content_on_any_route(
    agent: Client, olga: ConsoleClient, alice: ConsoleClient
) -> None:
    session = await filled_session(agent)
    shown = await alice.get(f"/sessions/{session}")
    assert SECRET in json.dumps(shown)
    for_operators = [route for route in ROUTES if route.role != "user"]
    assert {route.name for route in for_operators} >= {"operator_sessions", "operator_session"}
    for route in ROUTES:
        # The stream of events has a test of its own, and a logout ends the login.
        if route.name in ("events", "logout", "login", "operator_close"):
            continue
        status, text = await send(olga, route, session)
        assert SECRET not in text, route.name
        if "{session_id}" in route.path and route.role == "user":
            assert (status, json.loads(text)["code"]) == (404, "session_not_found"), route.name
        elif "{login_id}" in route.path or "{approval_id}" in route.path:
            assert status == 404, text
        elif route.name == "log_in":
            # This server has no logins for browsers.
            assert status == 400, text
        else:
            assert status == (403 if route.audience == "machine" else 200), (route.name, text)
    found = await olga.get(f"/operator/sessions/{session}")
    assert found["owner"] == {"subject": "alice", "issuer": ""}
    assert found["services"] == ["quick"]
    assert found["driver"] == "requested"
    assert found["stored_bytes"] > 0
    listed = await olga.get("/operator/sessions")
    assert found["session_id"] in [each["session_id"] for each in listed["sessions"]]


async def test_an_operator_gets_no_events_of_others(
    agent: Client, olga_agent: Client, olga: ConsoleClient
) -> None:
    async with olga.events() as events:
        await filled_session(agent)
        own = await opened_session(olga_agent)
        first = await events.session()
        assert first["session_id"] == own


async def test_an_operator_closes_a_session_of_another(
    agent: Client,
    olga: ConsoleClient,
    alice: ConsoleClient,
    server: Running,
    config_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = await filled_session(agent)
    closed = await olga.post(f"/operator/sessions/{session}/close")
    assert closed["session_id"] == session
    assert SECRET not in json.dumps(closed)

    async def reason() -> Any:
        shown = await alice.get(f"/sessions/{session}")
        return shown["status"] == "closed" and shown["reason"]

    assert await until(reason) == "operator"
    flags = ["--config", str(config_file), "--data", str(server.data)]

    async def entries() -> list[JSON]:
        capsys.readouterr()
        await to_thread.run_sync(main, ["audit", "export", *flags])
        found = map(json.loads, capsys.readouterr().out.splitlines())
        this = {"operation": "console/operator_close", "session_id": session}
        return [entry for entry in found if this.items() <= entry.items()]

    found: list[JSON] = await until(entries)
    assert "olga" in json.dumps(found)


async def test_an_operator_reads_no_reason_when_a_person_drives(
    agent: Client, olga: ConsoleClient, alice: ConsoleClient
) -> None:
    session = await filled_session(agent)
    await alice.act(session, "take")
    refused = await olga.refused("POST", f"/operator/sessions/{session}/close", {})
    assert refused["code"] == "human_in_control"
    assert SECRET not in json.dumps(refused)


async def test_nobody_else_may_do_what_operators_do(
    agent: Client, alice: ConsoleClient, server: Running
) -> None:
    session = await opened_session(agent)
    for route in ROUTES:
        if route.role != "user":
            status, text = await send(alice, route, session)
            assert (status, json.loads(text)["code"]) == (403, "not_allowed"), route.name
    async with console_client(server.url) as admin:
        await admin.log_in(token=ADA)
        assert (await admin.get(f"/operator/sessions/{session}"))["status"] == "idle"


async def test_an_unknown_session_is_not_found(olga: ConsoleClient) -> None:
    refused = await olga.refused("GET", "/operator/sessions/s_unknown")
    assert (refused["status"], refused["code"]) == (404, "session_not_found")


async def test_a_login_ends_when_the_role_of_its_token_changes(
    olga: ConsoleClient, tokens: Path
) -> None:
    assert (await olga.get("/me"))["role"] == "operator"
    file = anyio.Path(tokens)
    before = await file.read_text()
    await file.write_text(token_lines(f"{ALICE} alice\n{OLGA} olga\n{ADA} ada role=admin\n"))
    try:

        async def has_ended() -> bool:
            return (await olga.send("GET", "/me")).status_code == 401

        await until(has_ended)
    finally:
        await file.write_text(before)


@pytest.mark.thorough
async def test_the_filters_of_an_operator_stay_in_the_address(
    agent: Client, server: Running, browser: Browser
) -> None:
    old, new = await opened_session(agent), await opened_session(agent)
    page = await browser.new_page()
    await page.goto(f"{server.url}/console/#/operator?status=idle&sort=-created")
    await page.get_by_label("Token").fill(OLGA)
    await page.get_by_role("button", name="Log in").click()
    rows = page.locator("tbody tr")
    await rows.filter(has_text=new).wait_for()
    texts = await rows.all_inner_texts()
    places = [next(at for at, text in enumerate(texts) if each in text) for each in (old, new)]
    assert places == sorted(places)
    await page.get_by_label("Status").select_option("paused")
    await rows.filter(has_text=new).wait_for(state="hidden")
    await page.reload()
    await page.get_by_text("No session has this status.").wait_for()
    assert page.url.endswith("#/operator?status=paused&sort=-created")
    assert await page.get_by_label("Order").input_value() == "-created"
    await page.close()
