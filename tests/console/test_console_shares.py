"""Shares with people at the console: made and ended by the owner, used by the person."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from mcp import Client
from support.console_client import ConsoleClient, console_client
from support.gateway_process import JSON, Running, opened_session, service
from support.token_file import write_tokens

from statehold.console.app import ROUTES
from statehold.console.routes import PREFIX, USE, VIEW

ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"
BODIES: dict[str, JSON] = {
    "input": {"epoch": 1, "events": []},
    "act_renew": {"epoch": 1},
    "act_give_back": {"epoch": 1},
    "act_cancel_call": {"task_id": "x"},
    "create_share": {"subject": "eve"},
}
"""The bodies of routes that need members."""


@pytest.fixture(scope="module")
def settings(headless_shell: str, tmp_path_factory: pytest.TempPathFactory) -> JSON:
    path: Path = tmp_path_factory.mktemp("tokens") / "tokens"
    write_tokens(path, f"{ALICE} alice\n{BEN} ben\n")
    browser = {"executable": headless_shell, "private": True}
    services = {"quick": service("asking"), "browser": browser}
    return {"server": {"tokens": str(path)}, "services": services}


@pytest.fixture
async def ben(server: Running) -> AsyncGenerator[ConsoleClient]:
    async with console_client(server.url) as client:
        await client.log_in(token=BEN)
        yield client


async def denied_routes(client: ConsoleClient, session: str) -> set[str]:
    """Return the names of the routes of a session that say that there is no such session."""
    denied: set[str] = set()
    for route in ROUTES:
        if "{session_id}" not in route.path or route.role != "user":
            continue
        path = re.sub(r"\{\w+\}", "1", route.path.replace("{session_id}", session))
        body = None if route.method == "GET" else BODIES.get(route.name, {})
        answer = await client.send(route.method, path, body)
        if answer.status_code == 404 and answer.json()["code"] == "session_not_found":
            denied.add(route.name)
    return denied


async def test_a_share_allows_the_routes_of_its_rights_and_no_other(
    agent: Client, alice: ConsoleClient, ben: ConsoleClient
) -> None:
    session = await opened_session(agent, name="work to share", services=["quick"])
    of_session = [r for r in ROUTES if "{session_id}" in r.path and r.role == "user"]
    every = {route.name for route in of_session}
    assert await denied_routes(ben, session) == every
    assert (await ben.get("/shared"))["sessions"] == []
    await alice.post(f"/sessions/{session}/shares", subject="ben", expires_in_seconds=600)
    assert await denied_routes(ben, session) == {r.name for r in of_session if r.shared != VIEW}
    shown = await ben.get(f"/sessions/{session}")
    assert shown["access"] == "view"
    assert "shares" not in shown
    assert [each["name"] for each in (await ben.get("/shared"))["sessions"]] == ["work to share"]
    assert session not in [each["session_id"] for each in (await ben.get("/sessions"))["sessions"]]
    await alice.post(f"/sessions/{session}/shares", subject="ben", rights="use")
    assert (await ben.get(f"/sessions/{session}"))["access"] == "use"
    taken = await ben.act(session, "take")
    await ben.act(session, "give-back", epoch=taken["epoch"])
    assert await denied_routes(ben, session) == {r.name for r in of_session if r.shared is None}
    assert USE in {route.shared for route in of_session}
    assert f"{PREFIX}/shared" in {route.full_path for route in ROUTES}


async def test_an_owner_lists_and_ends_shares(
    agent: Client, alice: ConsoleClient, ben: ConsoleClient
) -> None:
    session = await opened_session(agent)
    path = f"/sessions/{session}/shares"
    await alice.post(path, group="crew", issuer="https://login.example.org")
    await alice.post(path, subject="ben", rights="use")
    shares = {(s.get("subject"), s.get("group")): s for s in (await alice.get(path))["shares"]}
    assert shares[None, "crew"]["issuer"] == "https://login.example.org"
    share = shares["ben", None]
    assert share["rights"] == "use"
    async with ben.events() as events:
        await agent.call_tool("session_rename", {"session_id": session, "name": "renamed"})
        renamed = await events.session(session_id=session)
        # An agent that asks there does not ask for Ben.
        assert (renamed["name"], renamed["shared"]) == ("renamed", True)
        ended = await alice.send("DELETE", f"{path}/{share['id']}")
        assert ended.status_code == 200
        refused = await ben.refused("GET", f"/sessions/{session}")
        assert (refused["status"], refused["code"]) == (404, "session_not_found")
    assert (await alice.refused("DELETE", f"{path}/{share['id']}"))["status"] == 404
    for body in ({"subject": "a", "group": "b"}, {"subject": "a", "rights": "embed"}, {}):
        wrong = await alice.refused("POST", path, body)
        assert wrong["code"] == "invalid_argument", body


@pytest.mark.thorough
async def test_a_picture_and_control_end_with_their_share(
    agent: Client, alice: ConsoleClient, ben: ConsoleClient
) -> None:
    session = await opened_session(agent, services=["browser"])
    own = {"session_id": session}
    await agent.call_tool("browser_navigate", {**own, "url": "data:text/html,<h1>Page</h1>"})
    path = f"/sessions/{session}/shares"
    await alice.post(path, subject="ben", rights="use")
    taken = await ben.act(session, "take")
    share = (await alice.get(path))["shares"][0]
    async with ben.frames(session) as frames:
        assert await frames.next() is not None
        assert (await alice.send("DELETE", f"{path}/{share['id']}")).status_code == 200
        await frames.last()
    for action in ("renew", "give-back"):
        renewed = {"epoch": taken["epoch"]}
        refused = await ben.refused("POST", f"/sessions/{session}/actions/{action}", renewed)
        assert refused["code"] == "session_not_found"
    body: JSON = {"epoch": taken["epoch"], "events": []}
    assert (await ben.refused("POST", f"/sessions/{session}/input", body))["status"] == 404
