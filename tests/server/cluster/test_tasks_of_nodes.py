"""Tasks of a killed node end in its next process; at another node, if their upstream server has tasks of its own."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from sqlalchemy import text
from support.cluster_nodes import Start
from support.databases import PostgreSQL
from support.fork_server import ForkServer
from support.gateway_process import JSON, UPSTREAMS, kill, service
from support.listening import run_listening
from support.task_client import Gate, TaskClient, task_client
from support.waiting import until

CALLS = 6


@pytest.fixture
def port(fork_server: ForkServer, log: Path) -> Generator[int]:
    """The port of an upstream server whose tools run as tasks."""
    log.touch()
    options = ("--log", str(log), "--transport", "http", "--era", "modern")
    with run_listening(fork_server.command(str(UPSTREAMS / "task_server.py"), *options)) as running:
        yield running


def logged(log: Path) -> list[JSON]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.thorough
async def test_the_tasks_of_a_killed_node_end_at_another(
    start: Start, port: int, log: Path
) -> None:
    more: JSON = {"services": {"tasks": {"url": f"http://127.0.0.1:{port}/mcp"}}}
    tasks: dict[str, str] = {}

    async def call(client: TaskClient, session: str, word: str) -> None:
        done = {"status": "completed", "result": {"content": [{"type": "text", "text": word}]}}
        script = [*[{"status": "working"}] * 30, done]
        created = await client.call("must", {"session_id": session, "script": script})
        tasks[created["taskId"]] = word

    with (
        anyio.fail_after(90),
        start("a", more=more) as first,
        start("b", more=more) as second,
    ):
        async with (
            task_client(f"{first.url}/mcp") as client,
            task_client(f"{second.url}/mcp") as other,
        ):
            session = await client.session()
            async with anyio.create_task_group() as group:
                for number in range(CALLS):
                    # Half of them reach their session through the other node.
                    asking = (client, other)[number % 2]
                    group.start_soon(call, asking, session, f"{number}")
            kill(first)
            for task, word in tasks.items():
                ended = await other.end_of(task)
                assert ended["result"]["content"][0]["text"] == word, ended
    tools = [line["tool"] for line in logged(log)]
    assert (tools.count("must"), tools.count("tasks/cancel")) == (CALLS, 0)


@pytest.mark.thorough
async def test_a_node_that_starts_again_keeps_its_tasks_though_another_is_asked_for_them(
    start: Start, postgresql: PostgreSQL, url: str, tmp_path: Path
) -> None:
    more: JSON = {"services": {"asking": service("asking", "--long")}}
    gate = Gate(tmp_path / "gate")
    with anyio.fail_after(90), ExitStack() as stack:
        first = stack.enter_context(start("a", more=more))
        second = stack.enter_context(start("b", more=more))
        rows = stack.enter_context(postgresql.connection(url))

        def owner() -> str | None:
            return rows.execute(text("SELECT node FROM session")).scalar_one()

        async with task_client(f"{first.url}/mcp") as client:
            session = await client.session()
            arguments: JSON = {"session_id": session, "fifo": str(gate.path)}
            task: str = (await client.call("hold", arguments))["taskId"]
        killed = owner()
        kill(first)

        async def start_again() -> None:
            await anyio.to_thread.run_sync(stack.enter_context, start("a", more=more))

        async with (
            task_client(f"{second.url}/mcp") as other,
            anyio.create_task_group() as group,
        ):
            group.start_soon(start_again)
            # Before the next process has resumed the connection of the call.
            await until(lambda: owner() != killed)

            async def is_found() -> bool:
                return "result" in await other.send("tasks/get", {"taskId": task})

            await until(is_found)
            await gate.release()
            ended = await other.end_of(task)
            assert ended["result"]["content"][0]["text"] == "held", ended
