"""Actions on sessions: the way of the tools, the errors of the tools; and control by a person."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import pytest
from mcp import Client
from support.console_client import ConsoleClient, console_client, operator
from support.gateway_process import (
    JSON,
    Running,
    Way,
    code_of,
    opened_session,
    service,
    serving,
    structured,
    toml,
)


@pytest.fixture
async def session(agent: Client) -> str:
    return await opened_session(agent)


async def call(agent: Client, session: str) -> JSON | str:
    """Call a tool of the session. Return its result, or the code of its error."""
    result = await agent.call_tool("echo", {"session_id": session, "text": "hello"})
    return code_of(result) if result.is_error else structured(result)


async def test_a_session_goes_through_all_actions(
    agent: Client, alice: ConsoleClient, root: ConsoleClient, session: str
) -> None:
    assert (await alice.act(session, "pause"))["status"] == "paused"
    assert (await alice.act(session, "resume"))["status"] == "idle"
    await call(agent, session)
    before = (await alice.get(f"/sessions/{session}"))["services"][0]["generation"]
    await alice.act(session, "restart")
    after = (await alice.get(f"/sessions/{session}"))["services"][0]["generation"]
    assert after > before
    await alice.act(session, "extend", seconds=60)
    assert (await alice.act(session, "rename", name="mine"))["name"] == "mine"
    [child] = (await alice.act(session, "fork"))["children"]
    await alice.act(child["session_id"], "close", force=True)
    assert (await alice.act(session, "export"))["document"]["session"]["id"] == session
    refused = await alice.refused("POST", f"/sessions/{session}/actions/export", {"secrets": True})
    assert (refused["status"], refused["code"]) == (403, "not_allowed")
    await root.act(session, "export", secrets=True)
    entries = (await alice.get(f"/sessions/{session}/timeline"))["entries"]
    causes = [entry["transition"]["cause"] for entry in entries if "transition" in entry]
    assert "console" in causes
    await root.act(session, "close")
    refused = await alice.refused("POST", f"/sessions/{session}/actions/pause", {})
    assert (refused["status"], refused["code"]) == (409, "session_closed")
    assert refused["recovery"]


async def test_arguments_and_names_are_refused_with_the_code_of_the_tool(
    agent: Client, alice: ConsoleClient, session: str
) -> None:
    await opened_session(agent, name="taken")
    renamed = await alice.refused("POST", f"/sessions/{session}/actions/rename", {"name": "taken"})
    assert (renamed["status"], renamed["code"]) == (409, "name_taken")
    for action, body in (
        ("close", {"force": "perhaps"}),
        ("pause", {"seconds": 1}),
        ("renew", {}),
        ("give-back", {"epoch": 1, "end": "expired"}),
    ):
        refused = await alice.refused("POST", f"/sessions/{session}/actions/{action}", body)
        assert (refused["status"], refused["code"]) == (400, "invalid_argument"), action


async def test_one_of_two_people_takes_control(
    agent: Client, alice: ConsoleClient, root: ConsoleClient, session: str
) -> None:
    epoch = (await alice.act(session, "take"))["epoch"]
    refused = await root.refused("POST", f"/sessions/{session}/actions/take", {})
    assert (refused["status"], refused["code"]) == (409, "control_refused")
    assert "alice at the console" in refused["message"]
    assert await call(agent, session) == "human_in_control"
    refused = await alice.refused("POST", f"/sessions/{session}/actions/restart", {})
    assert (refused["status"], refused["code"]) == (409, "human_in_control")
    path = f"/sessions/{session}/actions/give-back"
    old = await alice.refused("POST", path, {"epoch": epoch - 1})
    assert old["code"] == "control_refused"
    await alice.act(session, "give-back", epoch=epoch, end="could_not", reply="no such code")
    result = await agent.call_tool("echo", {"session_id": session, "text": "hello"})
    assert "could not do it" in str(result.content)
    assert "no such code" in str(result.content)


async def test_control_belongs_to_the_login_that_took_it(
    server: Running, alice: ConsoleClient, alice_token: str, root: ConsoleClient, session: str
) -> None:
    renew, give_back = (f"/sessions/{session}/actions/{name}" for name in ("renew", "give-back"))
    epoch = (await alice.act(session, "take"))["epoch"]
    async with console_client(server.url) as again:
        await again.log_in(token=alice_token)
        refused = await again.refused("POST", give_back, {"epoch": epoch})
        assert (refused["status"], refused["code"]) == (409, "control_refused")
        assert (await root.refused("POST", renew, {"epoch": epoch}))["code"] == "control_refused"
        # The same person takes it up again, and the earlier login loses it.
        new = (await again.act(session, "renew", epoch=epoch))["epoch"]
        for path in (renew, give_back):
            refused = await alice.refused("POST", path, {"epoch": epoch})
            assert refused["code"] == "control_refused"
        epoch = new
        await again.act(session, "give-back", epoch=epoch)
    epoch = (await alice.act(session, "take"))["epoch"]
    # The user of the machine may end any.
    await root.act(session, "give-back", epoch=epoch)


async def test_control_outlives_a_kill_of_the_server(tmp_path: Path) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    with serving(config, data) as first:
        async with Way("http", "modern", config, data, url=first.url).connect() as agent:
            session = await opened_session(agent)
            await call(agent, session)
            async with operator(data) as person:
                epoch = (await person.act(session, "take"))["epoch"]
                before = (await person.get(f"/sessions/{session}"))["control"]
            first.process.send_signal(signal.SIGKILL)
            first.process.wait(10)
    with serving(config, data) as second:
        async with (
            Way("http", "modern", config, data, url=second.url).connect() as agent,
            operator(data) as person,
        ):
            after = (await person.get(f"/sessions/{session}"))["control"]
            assert (after["driver"], after["holder"]) == ("human", before["holder"])
            assert (after["epoch"], after["since"]) == (epoch, before["since"])
            assert await call(agent, session) == "human_in_control"
            epoch = (await person.act(session, "renew", epoch=epoch))["epoch"]
            renewed = (await person.get(f"/sessions/{session}"))["control"]
            assert (renewed["epoch"], renewed["driver"]) == (epoch, "human")
            await person.act(session, "give-back", epoch=epoch)
            with anyio.fail_after(20):
                assert await call(agent, session) != "human_in_control"


async def test_another_node_answers_for_its_session(tmp_path: Path) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    with serving(config, data) as first, serving(config, data) as second:
        async with Way("http", "modern", config, data, url=second.url).connect() as agent:
            session = await opened_session(agent)
            await call(agent, session)
            async with operator(data) as person:
                # Either server may have minted the code: the session is asked for at both.
                nodes = (await person.get("/nodes"))["nodes"]
                assert {node["address"].partition(",")[0] for node in nodes} == {
                    first.url,
                    second.url,
                }
            for url in (first.url, second.url):
                async with operator(data, url) as person:
                    shown = await person.get(f"/sessions/{session}")
                    assert second.url in shown["open_in"]
                    assert shown["processes"][0]["pid"] > 1
                    epoch = (await person.act(session, "take"))["epoch"]
                    assert await call(agent, session) == "human_in_control"
                    await person.act(session, "renew", epoch=epoch)
                    await person.act(session, "give-back", epoch=epoch)
                    async with person.events() as events:
                        await call(agent, session)
                        await events.session(session_id=session, status="idle")
                    refused = await person.refused(
                        "POST", f"/sessions/{session}/actions/give-back", {"epoch": epoch}
                    )
                    assert (refused["status"], refused["code"]) == (409, "control_refused")
                    assert (await person.act(session, "pause"))["status"] == "paused"
                    await call(agent, session)
