"""Clients that share the background server of a data folder: one set of sessions, and everything else their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import anyio
import mcp_types as types
import pytest
from support.gateway_process import JSON, service, structured, text_of
from support.piped import HELLO, tool_call
from support.shared_clients import SharedClients

from statehold.server.exit_codes import OK

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
BIG = 1 << 20


@pytest.fixture(scope="module")
def settings() -> JSON:
    return {
        "services": {
            "counter": service("counter"),
            "asking": service("asking", "--era", "legacy", prefix="q_", concurrency=1),
        }
    }


async def inc(client: Any) -> int:
    return structured(await client.call_tool("inc", {}))["count"]


async def test_two_clients_call_one_session_in_turn_and_at_once(running: SharedClients) -> None:
    pin = ("--session", "both")
    async with running.connect(*pin) as one, running.connect(*pin, mode="auto") as other:
        with anyio.fail_after(30):
            assert [await inc(client) for client in (one, other) * 5] == list(range(1, 11))
            counts: list[int] = []

            async def count(client: Any) -> None:
                for _ in range(10):
                    counts.append(await inc(client))  # noqa: PERF401

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(count, one)
                tasks.start_soon(count, other)
            assert sorted(counts) == list(range(11, 31))


@pytest.mark.thorough
async def test_a_killed_client_changes_nothing_for_the_others(running: SharedClients) -> None:
    pin = ("--session", "kept")
    async with running.connect(*pin) as other:
        async with running.piped(*pin) as killed:
            assert (await killed.tool(1, "inc"))["structuredContent"]["count"] == 1
            await killed.send(tool_call(2, "slow", seconds=30))
            killed.process.send_signal(signal.SIGKILL)
            await killed.process.wait()
        with anyio.fail_after(20):
            assert [await inc(other), await inc(other)] == [2, 3]
    async with running.connect(*pin) as later:
        assert await inc(later) == 4


@pytest.mark.thorough
async def test_clients_have_sessions_of_their_own_by_name(running: SharedClients) -> None:
    async with running.connect("--session", "a") as a, running.connect("--session", "b") as b:
        assert [await inc(a), await inc(a), await inc(b)] == [1, 2, 1]
    async with running.connect() as unpinned:
        listed = structured(await unpinned.call_tool("session_list", {}))
        assert {"a", "b"} <= {session["name"] for session in listed["sessions"]}
        assert structured(await unpinned.call_tool("inc", {"session_id": "a"}))["count"] == 3


@pytest.mark.thorough
async def test_each_client_has_its_own_log_level(running: SharedClients) -> None:
    received: dict[str, list[str]] = {"low": [], "high": []}

    def collect(name: str) -> Any:
        async def log(params: types.LoggingMessageNotificationParams) -> None:
            received[name].append(str(params.data))

        return log

    pin = ("--session", "levels")
    async with (
        running.connect(*pin, logging_callback=collect("low")) as low,
        running.connect(*pin, logging_callback=collect("high")) as high,
    ):
        await low.set_logging_level("debug")  # pyright: ignore[reportDeprecated]
        await high.set_logging_level("error")  # pyright: ignore[reportDeprecated]
        for client in (low, high):
            for level in ("info", "error"):
                await client.call_tool("log", {"level": level, "text": level})
    assert received == {"low": ["info", "error"], "high": ["error"]}


@pytest.mark.thorough
async def test_each_client_has_its_own_roots(running: SharedClients) -> None:
    def roots(uri: str) -> Any:
        async def answer(_: object) -> types.ListRootsResult:
            return types.ListRootsResult.model_validate({"roots": [{"uri": uri}]})

        return answer

    pin = ("--session", "roots")
    async with (
        running.connect(*pin, list_roots_callback=roots("file:///one")) as one,
        running.connect(*pin, list_roots_callback=roots("file:///two")) as two,
    ):
        for client, uri in ((one, "file:///one"), (two, "file:///two"), (one, "file:///one")):
            result = await client.call_tool("q_roots", {})
            assert json.loads(text_of(result))["roots"][0]["uri"] == uri


@pytest.mark.thorough
async def test_a_question_ends_with_its_client(running: SharedClients) -> None:
    """A 2026-07-28 call waits for answers beyond its request; a client that has left sends none."""
    meta: JSON = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    pin = ("--session", "asked")
    async with running.piped(*pin, hello=False) as leaves:
        call = tool_call(1, "q_ask")
        call["params"]["_meta"] = meta
        await leaves.send(call)
        assert (await leaves.answer(1))["result"]["resultType"] == "input_required"
    async with running.connect(*pin) as client:
        with anyio.fail_after(10):
            result = await client.call_tool("q_inc", {})
            assert not result.is_error, text_of(result)


@pytest.mark.thorough
async def test_big_messages_pass_in_both_directions(running: SharedClients) -> None:
    async with running.connect("--session", "big") as client:
        with anyio.fail_after(30):
            assert len(text_of(await client.call_tool("big", {"kib": BIG >> 10}))) >= BIG
            result = await client.call_tool("echo", {"text": "x" * BIG})
            assert "x" * BIG in text_of(result)


def lines(*messages: JSON) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)


@pytest.mark.thorough
def test_a_client_that_closes_its_side_gets_its_last_answers(
    running: SharedClients,
) -> None:
    call = tool_call(1, "slow", seconds=0.3, steps=1)
    ran = running.run("--session", "last", given=lines(*HELLO, call))
    assert ran.returncode == OK, ran.stderr
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [answer["id"] for answer in answers if "result" in answer] == [0, 1]
    assert ran.stderr == b""


@pytest.mark.thorough
async def test_a_client_that_reads_no_answers_ends_with_its_stdin(running: SharedClients) -> None:
    async with running.piped("--session", "deaf") as deaf:
        assert deaf.process.stdout is not None
        await deaf.process.stdout.aclose()
        await deaf.send(tool_call(1, "inc"))
        await deaf.stdin.aclose()
        with anyio.fail_after(20):
            assert await deaf.process.wait() == OK
    async with running.connect("--session", "deaf") as client:
        assert await inc(client) == 2


@pytest.mark.thorough
async def test_a_subscription_ends_with_its_client_and_no_other(running: SharedClients) -> None:
    async with running.connect(mode="auto") as stays:
        async with running.connect(mode="auto") as leaves, leaves.listen(tools_list_changed=True):
            pass
        async with stays.listen(tools_list_changed=True) as events:
            async with (
                running.connect(mode="auto") as leaves,
                leaves.listen(tools_list_changed=True),
            ):
                pass
            session = structured(await stays.call_tool("session_create", {}))["session_id"]
            await stays.call_tool("grow", {"session_id": session})
            with anyio.fail_after(20):
                async for event in events:
                    assert "tools" in type(event).__name__.lower()
                    break


@pytest.mark.thorough
def test_the_pipe_imports_nothing_that_takes_time(running: SharedClients) -> None:
    running.run()
    flags = ["--config", str(running.config), "--data", str(running.data)]
    program = [sys.executable, "-X", "importtime", "-m", "statehold", "--shared", *flags]
    ran = subprocess.run(
        program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    heavy = {"anyio", "asyncio", "mcp", "pydantic", "sqlalchemy", "subprocess", "platformdirs"}
    assert heavy & imported == set()
