"""Calls of clients that declare no tasks: with `server.hand_over` they go on, and the toolset `calls` has their results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp_types import ElicitResult
from support.gateway_process import (
    Running,
    Way,
    code_of,
    count,
    kill,
    meta_of,
    opened_session,
    service,
    serving,
    structured,
    text_of,
    toml,
)
from support.selection import matrix
from support.task_client import ANSWER, Gate, task_client
from support.token_file import write_tokens
from support.waiting import until

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load
from statehold.sessions.json_codec import JSON

ALICE, EVE = "alice-token-0123456789", "eve-token-0123456789abc"
TOOLSETS = ["core", "history", "calls"]


def settings(hand_over: int, **more: str) -> str:
    server: JSON = {"hand_over": hand_over, **more}
    services = {"asking": service("asking", "--era", "legacy")}
    return toml({"toolsets": TOOLSETS, "server": server, "services": services})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("calls")
    write_tokens(folder / "tokens", f"{ALICE} alice\n{EVE} eve\n")
    config = folder / "statehold.toml"
    config.write_text(settings(1, tokens=str(folder / "tokens")))
    with serving(config, folder / "data") as running:
        yield running


@pytest.fixture(params=matrix("legacy", "modern", quick=1))
def way(server: Running, request: pytest.FixtureRequest) -> Way:
    return Way("http", request.param, Path(), server.data, url=server.url)


async def accept(context: object, params: object) -> ElicitResult:
    return ElicitResult(action="accept", content={"answer": "now"})


@pytest.fixture
async def client(way: Way) -> AsyncGenerator[Client]:
    with anyio.fail_after(60):
        headers = {"authorization": f"Bearer {ALICE}"}
        async with way.connect(headers=headers, elicitation_callback=accept) as client:
            yield client


async def hold(client: Client, gate: Gate) -> str:
    """Begin a call that waits for the gate, and return the id of its task."""
    session = await opened_session(client)
    refused = await client.call_tool("hold", {"session_id": session, "fifo": str(gate.path)})
    assert code_of(refused) == "still_running"
    assert "call_result" in meta_of(refused)["statehold/error"]["recovery"]
    task = text_of(refused).partition("task_id is ")[2].partition(".\n")[0]
    assert task.startswith(f"{session}.")
    return task


async def test_a_call_that_is_handed_over_ends_with_its_own_result(
    client: Client, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    task = await hold(client, gate)
    look = {"task_id": task, "wait_seconds": 0}
    assert code_of(await client.call_tool("call_result", look)) == "still_running"
    [listed] = structured(await client.call_tool("call_list", {}))["calls"]
    assert (listed["task_id"], listed["tool"], listed["status"]) == (task, "hold", "working")
    await gate.release()
    for _ in range(2):
        result = await client.call_tool("call_result", {"task_id": task})
        assert (result.is_error, text_of(result)) == (False, "held")
    assert structured(await client.call_tool("call_list", {}))["calls"] == []
    session = task.partition(".")[0]
    history = structured(await client.call_tool("session_history", {"session_id": session}))
    assert [each.get("tool") for each in history["entries"]].count("hold") == 1


async def test_a_call_that_ends_in_time_is_answered_as_ever(client: Client) -> None:
    session = await opened_session(client)
    assert await count(client, session) == 1
    asked = await client.call_tool("ask", {"session_id": session})
    assert "now" in text_of(asked)


async def test_a_call_that_was_handed_over_can_be_cancelled(client: Client, tmp_path: Path) -> None:
    task = await hold(client, Gate(tmp_path / "gate"))
    cancelled = structured(await client.call_tool("call_cancel", {"task_id": task}))
    assert cancelled == {"task_id": task, "status": "cancelled"}
    assert code_of(await client.call_tool("call_result", {"task_id": task})) == "outcome_unknown"


async def test_a_question_after_the_hand_over_is_shown_and_waits_for_another_client(
    server: Running, client: Client, tmp_path: Path, way: Way
) -> None:
    session, gate = await opened_session(client), Gate(tmp_path / "gate")
    arguments = {"session_id": session, "fifo": str(gate.path), "asks": True}
    refused = await client.call_tool("hold", arguments)
    assert code_of(refused) == "still_running"
    [listed] = structured(await client.call_tool("call_list", {}))["calls"]
    await gate.release()
    asked = await client.call_tool("call_result", {"task_id": listed["task_id"]})
    assert code_of(asked) == "still_running"
    assert "What is the answer?" in text_of(asked)
    [listed] = structured(await client.call_tool("call_list", {}))["calls"]
    assert listed["status"] == "input_required"
    assert "What is the answer?" in listed["question"]
    headers = {"authorization": f"Bearer {ALICE}"}
    async with task_client(f"{server.url}/mcp", headers=headers) as other:
        found = await other.get(listed["task_id"])
        answers = dict.fromkeys(found["inputRequests"], ANSWER)
        await other.result("tasks/update", {"taskId": listed["task_id"], "inputResponses": answers})
    result = await client.call_tool("call_result", {"task_id": listed["task_id"]})
    assert "late" in text_of(result)


async def test_a_question_after_the_hand_over_is_not_put_to_the_caller_of_another_call(
    client: Client, tmp_path: Path
) -> None:
    session, gate = await opened_session(client), Gate(tmp_path / "gate")
    arguments = {"session_id": session, "fifo": str(gate.path), "asks": True}
    assert code_of(await client.call_tool("hold", arguments)) == "still_running"

    async def calls() -> JSON:
        return structured(await client.call_tool("call_list", {}))["calls"][0]

    async def are_both_sent() -> bool:
        found = structured(await client.call_tool("session_info", {"session_id": session}))
        return found["in_flight"] == 2

    async def is_asked() -> bool:
        return (await calls())["status"] != "working"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "slow", {"session_id": session, "seconds": 0.9})
        await until(are_both_sent)
        await gate.release()
    await until(is_asked)
    assert "What is the answer?" in (await calls())["question"]
    await client.call_tool("session_close", {"session_id": session, "force": True})


async def test_another_owner_has_no_call(way: Way, client: Client, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    task = await hold(client, gate)
    async with way.connect(headers={"authorization": f"Bearer {EVE}"}) as eve:
        assert structured(await eve.call_tool("call_list", {}))["calls"] == []
        foreign, unknown = list[str](), f"{task.partition('.')[0]}.none"
        for tool in ("call_result", "call_cancel"):
            foreign.append(text_of(await eve.call_tool(tool, {"task_id": task})))
            for asker in (eve, client):
                foreign.append(text_of(await asker.call_tool(tool, {"task_id": unknown})))
        assert len(set(foreign)) == 1
    await gate.release()
    assert text_of(await client.call_tool("call_result", {"task_id": task})) == "held"


@pytest.mark.thorough
async def test_a_call_of_another_node_is_waited_for_and_cancelled_there(tmp_path: Path) -> None:
    config, gates = tmp_path / "statehold.toml", [Gate(tmp_path / name) for name in ("a", "b")]
    config.write_text(settings(1))
    with serving(config, tmp_path / "data") as one, serving(config, tmp_path / "data") as two:
        ways = [Way("http", "legacy", config, each.data, url=each.url) for each in (one, two)]
        async with ways[0].connect() as here, ways[1].connect() as there:
            task, other = [await hold(here, gate) for gate in gates]
            calls = structured(await there.call_tool("call_list", {}))["calls"]
            assert [each["task_id"] for each in calls] == [other, task]
            cancelled = await there.call_tool("call_cancel", {"task_id": other})
            assert structured(cancelled)["status"] == "cancelled"
            await gates[0].release()
            assert text_of(await there.call_tool("call_result", {"task_id": task})) == "held"


async def test_a_call_ends_though_its_server_was_killed(tmp_path: Path) -> None:
    config, gate = tmp_path / "statehold.toml", Gate(tmp_path / "gate")
    config.write_text(settings(1))
    with serving(config, tmp_path / "data") as running:
        async with Way("http", "legacy", config, running.data, url=running.url).connect() as client:
            task = await hold(client, gate)
        kill(running)
    with serving(config, tmp_path / "data") as running:
        async with Way("http", "legacy", config, running.data, url=running.url).connect() as client:
            look = {"task_id": task, "wait_seconds": 0}
            assert code_of(await client.call_tool("call_result", look)) == "still_running"
            await gate.release()
            assert text_of(await client.call_tool("call_result", {"task_id": task})) == "held"


def test_hand_over_needs_the_tools_that_bring_results(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text("[server]\nhand_over = 50\n")
    with pytest.raises(ConfigError, match="add calls to toolsets"):
        load(config=config, environ={})
