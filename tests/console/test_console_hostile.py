"""Hostile input at the console: texts of pages and agents, odd requests, secrets that must not be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from support.console_client import ConsoleClient, console_client, operator
from support.gateway_process import Running, opened_session, service, serving, toml

SCRIPT = "<img src=x onerror=alert(1)>"


async def test_texts_of_agents_are_data_in_json(agent: Client, alice: ConsoleClient) -> None:
    odd = {"title": SCRIPT, "large": 2**70}
    session = await opened_session(agent, name=SCRIPT, metadata={"title": SCRIPT}, state=odd)
    await agent.call_tool(
        "session_note", {"session_id": session, "role": "user", "content": f"{SCRIPT}\r\n\u2028"}
    )
    shown = await alice.send("GET", f"/sessions/{session}")
    assert shown.headers["content-type"] == "application/json"
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert shown.json()["name"] == SCRIPT
    state = (await alice.get(f"/sessions/{session}/state"))["value"]
    assert (state["title"], state["large"]) == (SCRIPT, 2**70)
    last = (await alice.get(f"/sessions/{session}/timeline"))["entries"][-1]
    assert last["content"] == f"{SCRIPT}\r\n\u2028"
    async with alice.events() as events:
        # A line break in a text cannot begin another event.
        await alice.act(session, "rename", metadata={"title": "a\n\nevent: forged"})
        await agent.call_tool("echo", {"session_id": session, "text": "hello"})
        assert (await events.session(session_id=session))["metadata"]["title"].endswith("forged")


@pytest.mark.parametrize(
    "session_id", ["%2e%2e", "sh_%00", "a" * 5000, "sh_a%0d%0aset-cookie:x", "%F0%9F%98%80", "'--"]
)
async def test_an_odd_id_is_an_unknown_session(alice: ConsoleClient, session_id: str) -> None:
    response = await alice.send("GET", f"/sessions/{session_id}")
    # A path with a line break is no path of the console, so the check of tokens refuses it.
    assert response.status_code in (401, 404, 414, 431), response.text
    assert "set-cookie" not in response.headers


async def test_odd_bodies_are_refused(alice: ConsoleClient, agent: Client) -> None:
    session = await opened_session(agent)
    path = f"/sessions/{session}/actions/rename"
    bodies: list[tuple[object, int]] = [
        (["x"], 400),
        ("name", 400),
        ({"name": 5}, 400),
        ({"name": "x" * 200}, 400),
        ({"metadata": {"a": "x" * 2_000_000}}, 413),
        ({"session_id": "another"}, 400),
    ]
    for body, status in bodies:
        refused = await alice.refused("POST", path, body)
        assert refused["status"] == status, str(body)[:40]


async def test_no_secret_of_a_login_is_written(tmp_path: Path) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({"log": {"level": "debug"}, "services": {"quick": service("asking")}}))
    with serving(config, data) as running:
        async with operator(data) as person, console_client(running.url) as guest:
            session = "sh_none"
            await person.refused("POST", f"/sessions/{session}/shares", {"link": True})
            await guest.refused("POST", "/login", {"code": "a wrong code of a guest"})
            secrets = [person.cookie, person.csrf, "a wrong code of a guest"]
            await person.post("/logout")
        assert running.stop() == 0
    assert "logged in" in running.log
    texts = [
        running.log.encode(),
        *(path.read_bytes() for path in data.rglob("*") if path.is_file()),
    ]
    for secret in secrets:
        for text in texts:
            assert secret.encode() not in text


async def test_the_cookie_of_one_server_is_none_of_another(
    server: Running, root: ConsoleClient, tmp_path: Path
) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    with serving(config, tmp_path / "data") as running:
        async with console_client(running.url) as other:
            other.cookie, other.csrf = root.cookie, root.csrf
            assert (await other.refused("GET", "/me"))["status"] == 401
