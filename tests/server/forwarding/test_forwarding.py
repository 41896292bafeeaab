"""Requests for a session of another process of the data folder: the other process answers them, as if it had been asked."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from support.gateway_process import JSON, Running, count, meta_of, service, structured, text_of
from support.pairs import Pair
from support.runs import clear, wait_for_call, wait_for_cancellation

LOG = "calls.jsonl"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / LOG


@pytest.fixture(scope="module")
def settings(log: Path) -> JSON:
    return {
        "services": {
            "counter": service("counter", sandbox="off"),
            "quick": service("quick", "--log", str(log), prefix="quick_"),
        }
    }


async def test_two_processes_call_one_session_in_turns(pair: Pair) -> None:
    async with pair.edge.connect() as client:
        for expected in range(1, 9, 2):
            assert await count(pair.client, pair.session) == expected
            assert await count(client, pair.session) == expected + 1


@pytest.mark.thorough
async def test_many_calls_at_once_from_both_processes_all_run(pair: Pair) -> None:
    async with pair.edge.connect() as client, anyio.create_task_group() as tasks:
        for one in [pair.client, client] * 10:
            tasks.start_soon(count, one, pair.session)
    assert await count(pair.client, pair.session) == 21


async def test_progress_arrives_in_order_and_as_it_is_sent(pair: Pair) -> None:
    steps: list[float] = []
    first_note, result_arrived = anyio.Event(), False

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert not result_arrived
        if message is not None and message.startswith("step"):
            steps.append(progress)
            first_note.set()

    async with pair.edge.connect() as client:
        arguments = {**pair.at, "seconds": 0.4, "steps": 20}
        with anyio.fail_after(20):
            result = await client.call_tool("slow", arguments, progress_callback=note)
        result_arrived = True
    assert text_of(result) == "done"
    assert steps == sorted(steps)
    assert len(steps) == 20


async def test_a_cancelled_call_is_cancelled_upstream(pair: Pair, log: Path) -> None:
    clear(log)
    async with pair.edge.connect() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "quick_hang", pair.at)
            await wait_for_call(log, "hang")
            tasks.cancel_scope.cancel()
        await wait_for_cancellation(log)
        assert structured(await client.call_tool("quick_inc", pair.at))["count"] == 1


async def test_a_question_is_asked_and_answered_through_the_other_process(pair: Pair) -> None:
    async def elicit(context: object, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": params.message})

    async with pair.edge.connect(elicitation_callback=elicit) as client:
        with anyio.fail_after(20):
            result = await client.call_tool("ask", {**pair.at, "question": "Who?"})
            assert "Who?" in text_of(result)
            assert "accept" in text_of(result)
            again = await client.call_tool("ask", {**pair.at, "question": "And who else?"})
            assert "And who else?" in text_of(again)


@pytest.mark.thorough
async def test_log_messages_of_the_upstream_arrive(pair: Pair) -> None:
    heard: list[str] = []

    async def listen(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(str(params.data))

    async with pair.edge.connect(logging_callback=listen, log_level="info") as client:
        await client.call_tool("log", {**pair.at, "text": "hello"})
    assert heard == ["hello"]


async def test_resources_and_prompts_are_those_of_the_session(pair: Pair) -> None:
    await count(pair.client, pair.session)
    await count(pair.client, pair.session)
    async with pair.edge.connect() as client:
        address = f"session://{pair.session}/counter/counter%3A%2F%2Fvalue"
        part = (await client.read_resource(address)).contents[0]
        assert isinstance(part, types.TextResourceContents)
        assert part.text == "2"
        prompts = (await client.list_prompts()).prompts
        arguments = {argument.name: pair.session for argument in prompts[0].arguments or []}
        prompt = await client.get_prompt(prompts[0].name, arguments)
        expected = await pair.client.get_prompt(prompts[0].name, arguments)
        assert prompt.messages == expected.messages


@pytest.mark.thorough
async def test_a_large_result_and_an_image_arrive_unchanged(pair: Pair) -> None:
    # The SDK's client reads at most 1 MiB in one event, and a legacy answer that takes long is an event.
    kib = 4096 if pair.edge.modern else 900
    async with pair.edge.connect() as client:
        result = await client.call_tool("big", {**pair.at, "kib": kib})
        assert text_of(result) == "x" * kib * 1024
        block = (await client.call_tool("image", {**pair.at, "kib": 300})).content[0]
        assert isinstance(block, types.ImageContent)
        assert len(block.data) == 300 * 1024


@pytest.mark.thorough
async def test_every_number_and_character_arrives_unchanged(pair: Pair) -> None:
    async with pair.edge.connect() as client:
        text = 'Zürich \u2028 "\\\t'
        echoed = await client.call_tool("echo", {**pair.at, "n": 2**63 - 1, "text": text})
    assert structured(echoed)["arguments"] == {"n": 2**63 - 1, "text": text}


async def test_own_tools_act_on_the_session_of_the_other_process(pair: Pair) -> None:
    await count(pair.client, pair.session)
    async with pair.edge.connect() as client:

        async def call(tool: str, **arguments: Any) -> JSON:
            return structured(await client.call_tool(tool, {**pair.at, **arguments}))

        assert (await call("state_update", values={"a": 1}))["version"] == 1
        read = structured(await pair.client.call_tool("state_get", pair.at))
        assert read["value"] == {"a": 1}
        assert (await call("state_get"))["value"] == {"a": 1}
        assert (await call("session_info"))["status"] == "idle"
        assert (await call("session_pause"))["status"] == "paused"
        assert await count(pair.client, pair.session) == 2
        assert (await call("session_close"))["status"] == "closed"
        refused = await client.call_tool("inc", pair.at)
        assert meta_of(refused)["statehold/error"]["code"] == "session_closed"


@pytest.mark.thorough
async def test_an_operation_runs_once_whichever_process_is_asked(pair: Pair) -> None:
    operation: Any = {"statehold/operation_id": "op-1"}
    async with pair.edge.connect() as client:
        for one in (client, pair.client, client):
            result = await one.call_tool("inc", pair.at, meta=operation)
            assert structured(result)["count"] == 1
        operation["statehold/operation_id"] = "op-2"
        for one in (client, pair.client, client):
            arguments = {**pair.at, "values": {"n": 1}}
            result = await one.call_tool("state_update", arguments, meta=operation)
            assert structured(result)["version"] == 1


@pytest.mark.thorough
async def test_a_session_is_found_by_its_name(pair: Pair) -> None:
    created = await pair.client.call_tool("session_create", {"name": "named"})
    session = structured(created)["session_id"]
    async with pair.edge.connect() as client:
        assert await count(client, "named") == 1
        assert await count(client, "named") == 2
        await client.call_tool("session_close", {"session_id": session})


@pytest.mark.thorough
async def test_a_pinned_session_may_be_another_processs(pair: Pair, other: Running) -> None:
    created = await pair.client.call_tool("session_create", {"name": f"pinned-{pair.session}"})
    session = {"session_id": structured(created)["session_id"]}
    way = replace(pair.edge, transport="http", url=other.url)
    async with way.connect(f"/s/pinned-{pair.session}/mcp") as client:
        for expected in range(1, 5, 2):
            assert structured(await client.call_tool("inc"))["count"] == expected
            result = await pair.client.call_tool("inc", session)
            assert structured(result)["count"] == expected + 1
        updated = await client.call_tool("state_update", {"values": {"a": 1}})
        assert structured(updated)["version"] == 1
        uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert f"session://{session['session_id']}/state" in uris
        part = (
            await client.read_resource("session://" + session["session_id"] + "/state")
        ).contents
        assert isinstance(part[0], types.TextResourceContents)
        assert part[0].text == '{"a":1}'


async def test_errors_are_those_of_the_owner(pair: Pair) -> None:
    async with pair.edge.connect() as client:
        for tool, arguments in (("fail", {"message": "no"}), ("session_bind", {"service": "none"})):
            here = await pair.client.call_tool(tool, {**pair.at, **arguments})
            there = await client.call_tool(tool, {**pair.at, **arguments})
            assert here.is_error
            assert there.content == here.content


async def test_only_this_user_reaches_the_sockets(pair: Pair, data: Path) -> None:
    folder = data / "nodes"
    assert mode_of(folder) == 0o700
    sockets = sockets_of(data)
    assert sockets
    assert {mode_of(path) for path in sockets} == {0o600}


@pytest.mark.thorough
async def test_a_malformed_request_ends_its_connection_only(pair: Pair, data: Path) -> None:
    for path in sockets_of(data):
        async with await anyio.connect_unix(path) as stream:
            await stream.send(
                b'{"verb": "http"}\nPOST /node/requests HTTP/1.1\r\nhost: node\r\n\r\n'
            )
            with anyio.fail_after(10), pytest.raises(anyio.EndOfStream):
                await stream.receive()
    async with pair.edge.connect() as client:
        assert await count(client, pair.session) == 1


def sockets_of(data: Path) -> list[Path]:
    return list((data / "nodes").glob("*.sock"))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
