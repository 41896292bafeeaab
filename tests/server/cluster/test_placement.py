"""Sessions find a node: nodes that drain, edges, crowded nodes, and the commands about nodes."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from support.cluster_nodes import KEY, Start
from support.databases import PostgreSQL
from support.gateway_process import JSON, Running, Way, count, opened_session
from support.waiting import until

from statehold.shell.main import main

pytestmark = pytest.mark.thorough


@asynccontextmanager
async def client_of(node: Running) -> AsyncGenerator[Client]:
    async with Way("http", "modern", Path(), Path(), url=node.url).connect() as client:
        yield client


async def readiness(node: Running) -> int:
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.get(f"{node.url}/readyz")).status_code


async def is_readiness(node: Running, status_code: int) -> bool:
    return await readiness(node) == status_code


Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `statehold nodes ...` on the database, from a machine without a node, and returns the exit code and stdout."""
    config = tmp_path / "operator.toml"
    config.write_text(f'[store]\nurl = "{url}"\n[cluster]\nenabled = true\nkeys = ["{KEY}"]\n')

    def run(*words: str) -> tuple[int, str]:
        code = main(
            ["nodes", *words, "--config", str(config), "--data", str(tmp_path / "operator")]
        )
        return code, capsys.readouterr().out

    return run


async def ask(command: Command, *words: str) -> tuple[int, str]:
    return await anyio.to_thread.run_sync(lambda: command(*words))


async def listed(command: Command) -> list[JSON]:
    _, text = await ask(command, "list", "--json")
    return json.loads(text)["nodes"]


async def test_a_session_is_passed_on_to_a_node_that_remembers_its_last_owner(
    start: Start,
) -> None:
    with start("b") as other, start("leaving", more={"timeouts": {"close_grace": 5}}) as leaving:
        async with client_of(leaving) as client, client_of(other) as client_of_other:
            session = await opened_session(client)
            assert await count(client_of_other, session) == 1
            leaving.process.send_signal(signal.SIGTERM)
            assert await readiness(leaving) == 404
            with anyio.fail_after(4):
                assert await count(client, session) == 1


@pytest.mark.fault
async def test_an_edge_that_does_not_reach_one_node_asks_another_one(start: Start) -> None:
    with start("b") as other, start("c", capacity=1000) as gone, start("edge", capacity=0) as edge:
        async with client_of(edge) as client:
            await opened_session(client)
            await until(lambda: "created" in gone.log)
            gone.process.send_signal(signal.SIGKILL)
            gone.process.wait(10)
            session = await opened_session(client)
            assert await count(client, session) == 1
            await until(lambda: "created" in other.log)


async def test_a_crowded_node_has_new_sessions_created_elsewhere(start: Start) -> None:
    with start("a") as crowded:
        async with client_of(crowded) as client:
            for _ in range(6):
                await opened_session(client)
            with start("b") as other:

                async def is_created_there() -> bool:
                    session = await opened_session(client)
                    assert await count(client, session) == 1
                    return "created" in other.log

                await until(is_created_there)


async def test_a_crowded_node_gives_up_sessions_that_are_idle(
    start: Start, command: Command
) -> None:
    with start("a") as crowded:
        async with client_of(crowded) as client:
            sessions = [await opened_session(client) for _ in range(8)]
            with start("b"):

                async def is_balanced() -> bool:
                    return [node["sessions"] for node in await listed(command)][:1] == [7]

                await until(is_balanced, within=40)
                for session in sessions:
                    assert await count(client, session) == 1


async def test_an_operator_has_a_node_drain(start: Start, command: Command) -> None:
    with start("a") as drained, start("b") as other:
        async with client_of(drained) as client:
            session = await opened_session(client)
            assert await count(client, session) == 1
            node, other_node = await listed(command)
            assert [node["state"], other_node["state"]] == ["up", "up"]
            assert node["peer"].startswith("127.0.0.1:")
            assert (await ask(command, "drain", node["node"]))[0] == 0

            async def has_noticed() -> bool:
                return "this node drains" in drained.log

            await until(has_noticed)
            result = await client.call_tool("inc", {"session_id": session})
            assert not result.is_error
            assert "generation 1 to 2" in str(result.content)
            assert await readiness(drained) == 404
            assert await readiness(other) == 200
            assert {n["node"]: n["state"] for n in await listed(command)} == {
                node["node"]: "draining",
                other_node["node"]: "up",
            }


@pytest.mark.fault
async def test_an_operator_removes_a_node_that_is_gone(start: Start, command: Command) -> None:
    with start("a", lease_seconds=200) as gone:
        async with client_of(gone) as client:
            session = await opened_session(client)
        gone.process.send_signal(signal.SIGKILL)
        gone.process.wait(10)
        with start("b") as other:
            name = (await listed(command))[0]["node"]
            assert (await ask(command, "remove", name))[0] == 4
            assert (await ask(command, "remove", "n_none"))[0] == 3
            code, text = await ask(command, "remove", name, "--force")
            assert code == 0
            assert "1 of its sessions" in text
            async with client_of(other) as client:
                assert await count(client, session) == 1


async def test_a_node_is_not_ready_without_its_database(
    start: Start, postgresql: PostgreSQL
) -> None:
    with start("a") as node:
        assert await readiness(node) == 200
        postgresql.kill()
        try:
            await until(partial(is_readiness, node, 503))
            async with httpx2.AsyncClient(timeout=60) as http:
                assert (await http.get(f"{node.url}/livez")).status_code == 200
        finally:
            postgresql.start()
        await until(partial(is_readiness, node, 200))
