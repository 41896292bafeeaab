"""HTTP upstreams after a kill of Statehold: the next process goes on in their sessions, and reports only real losses."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from support.fork_server import ForkServer
from support.gateway_process import (
    Era,
    Running,
    Way,
    code_of,
    meta_of,
    opened_session,
    serving,
    structured,
    toml,
)
from support.listening import run_listening
from support.runs import entries, wait_for_call
from support.selection import matrix
from support.tcp_relay import relay

StartUpstream = Callable[..., AbstractContextManager[int]]


@pytest.fixture
def start_upstream(
    upstream: Callable[..., list[str]], fork_server: ForkServer, log: Path
) -> StartUpstream:
    """`with start_upstream("legacy") as port` runs a counter over Streamable HTTP."""

    @contextmanager
    def start(era: Era, *options: str, port: int = 0) -> Generator[int]:
        arguments = ["--transport", "http", "--era", era, "--port", str(port), "--log", str(log)]
        _, *program = upstream("counter", *arguments, *options)
        with run_listening(fork_server.command(*program)) as port_of_upstream:
            yield port_of_upstream

    return start


class Node:
    """The processes of Statehold over one data folder, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def configure(self, port: int) -> None:
        services = {"counter": {"url": f"http://127.0.0.1:{port}/mcp"}}
        toolsets = ["core", "lifecycle", "history", "admin"]
        settings = {"toolsets": toolsets, "services": services, "log": {"level": "debug"}}
        (self.folder / "statehold.toml").write_text(toml(settings))

    def serve(self) -> AbstractContextManager[Running]:
        return serving(self.folder / "statehold.toml", self.folder / "data")

    @asynccontextmanager
    async def connect(self, running: Running) -> AsyncGenerator[Client]:
        way = Way("http", "modern", self.folder / "statehold.toml", self.folder, url=running.url)
        async with way.connect() as client:
            yield client


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def kill(running: Running) -> None:
    running.process.kill()
    with anyio.fail_after(20):
        code = await anyio.to_thread.run_sync(running.process.wait)
    assert code == -signal.SIGKILL


async def count_and_kill(node: Node, port: int) -> str:
    """Count once in a new session, kill its server, and return the session."""
    node.configure(port)
    with node.serve() as running:
        async with node.connect(running) as client:
            session = await opened_session(client)
            await increment(client, session)
        await kill(running)
    return session


async def increment(client: Client, session: str) -> tuple[int, str]:
    """Return the count, and the notice of the answer."""
    result = await client.call_tool("inc", {"session_id": session})
    return structured(result)["count"], meta_of(result).get("statehold/notice", "")


async def generation(client: Client, session: str) -> int:
    return structured(await client.call_tool("session_info", {"session_id": session}))["generation"]


def upstream_sessions(log: Path) -> list[str | None]:
    """Return the ids of the upstream's sessions that received calls."""
    return list(dict.fromkeys(entry["connection"] for entry in entries(log)))


def request_ids(sent: list[bytearray], upstream_session: str | None) -> set[bytes]:
    """Return the ids of the requests that were sent to a session of the upstream."""
    assert upstream_session is not None
    requests = [request for part in sent for request in bytes(part).split(b"POST /mcp")]
    return {
        number
        for request in requests
        if upstream_session.encode() in request
        for number in re.findall(rb'"id":\s*(\d+)', request)
    }


async def is_known(port: int, upstream_session: str) -> bool:
    """Return whether the upstream has a session."""
    async with httpx2.AsyncClient(timeout=60) as client:
        response = await client.post(
            f"http://127.0.0.1:{port}/mcp",
            json={"jsonrpc": "2.0", "id": 99, "method": "ping"},
            headers={
                "mcp-session-id": upstream_session,
                "accept": "application/json, text/event-stream",
            },
        )
    return response.status_code != 404


@pytest.mark.parametrize("paused", matrix(False, True))
async def test_a_session_of_an_upstream_goes_on_after_a_kill(
    start_upstream: StartUpstream, node: Node, log: Path, paused: bool
) -> None:
    with start_upstream("legacy") as port:
        node.configure(port)
        with node.serve() as running:
            async with node.connect(running) as client:
                session = await opened_session(client)
                assert await increment(client, session) == (1, "")
                if paused:
                    await client.call_tool("session_pause", {"session_id": session})
            await kill(running)
        for kills in (1, 2):
            with node.serve() as running:
                async with node.connect(running) as client:
                    assert await increment(client, session) == (1 + kills, "")
                    assert await generation(client, session) == 1
                await kill(running)
        [upstream_session] = upstream_sessions(log)
        assert upstream_session is not None
        with node.serve() as running:
            async with node.connect(running) as client:
                assert (await increment(client, session))[0] == 4
                await client.call_tool("session_close", {"session_id": session})
                assert not await is_known(port, upstream_session)


@pytest.mark.thorough
async def test_an_upstream_without_sessions_goes_on_after_a_kill(
    start_upstream: StartUpstream, node: Node
) -> None:
    with start_upstream("modern") as port:
        node.configure(port)
        with node.serve() as running:
            async with node.connect(running) as client:
                session = await opened_session(client)
                assert await increment(client, session) == (1, "")
            await kill(running)
        with node.serve() as running:
            async with node.connect(running) as client:
                assert await increment(client, session) == (2, "")
                assert await generation(client, session) == 1


@pytest.mark.thorough
async def test_a_call_that_the_kill_interrupted_has_no_known_outcome(
    start_upstream: StartUpstream, node: Node, log: Path
) -> None:
    meta: Any = {"statehold/operation_id": "once"}
    with start_upstream("legacy") as port:
        node.configure(port)
        with node.serve() as running:
            async with node.connect(running) as client:
                session = await opened_session(client)
                await increment(client, session)
                arguments = {"session_id": session, "seconds": 60}

                async def call_slow() -> None:
                    # The kill breaks the transport of this client as well.
                    with suppress(Exception):
                        async with node.connect(running) as other:
                            await other.call_tool("slow", arguments, meta=meta)

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call_slow)
                    await wait_for_call(log, "slow")
                    await kill(running)
                    tasks.cancel_scope.cancel()
        with node.serve() as running:
            async with node.connect(running) as client:
                repeat = await client.call_tool("slow", arguments, meta=meta)
                assert code_of(repeat) == "outcome_unknown"
                assert await increment(client, session) == (2, "")


@pytest.mark.parametrize("status", matrix(400, 404))
async def test_a_session_that_its_upstream_does_not_know_any_more_is_lost(
    start_upstream: StartUpstream, node: Node, status: int
) -> None:
    with start_upstream("legacy") as port:
        session = await count_and_kill(node, port)
    with (
        start_upstream("legacy", "--unknown-session", str(status), port=port),
        node.serve() as running,
    ):
        async with node.connect(running) as client:
            count, notice = await increment(client, session)
            assert count == 1
            assert "generation 1 to 2; the server no longer knows this session" in notice
            assert "Lost: everything this server kept in memory." in notice
            assert await increment(client, session) == (2, "")


@pytest.mark.thorough
async def test_a_session_is_not_lost_while_its_upstream_cannot_be_reached(
    start_upstream: StartUpstream, node: Node
) -> None:
    with start_upstream("legacy") as upstream_port:
        with relay() as to_upstream:
            to_upstream.target, port = upstream_port, to_upstream.port
            node.configure(port)
            with node.serve() as running:
                async with node.connect(running) as client:
                    session = await opened_session(client)
                    await increment(client, session)
                await kill(running)
        with node.serve() as running:
            async with node.connect(running) as client:
                refused = await client.call_tool("inc", {"session_id": session})
                assert code_of(refused) == "service_unavailable"
                with relay(port) as to_upstream:
                    to_upstream.target = upstream_port
                    assert await increment(client, session) == (2, "")
                    assert await generation(client, session) == 1


@pytest.mark.thorough
async def test_requests_after_a_kill_have_ids_of_their_own(
    start_upstream: StartUpstream, node: Node, log: Path
) -> None:
    """A call of the killed process may still run. Its answer must not reach a new request."""
    with start_upstream("legacy") as upstream_port, relay() as to_upstream:
        to_upstream.target = upstream_port
        node.configure(to_upstream.port)
        with node.serve() as running:
            async with node.connect(running) as client:
                session = await opened_session(client)
                await increment(client, session)
            await kill(running)
        [upstream_session] = upstream_sessions(log)
        connections = len(to_upstream.sent)
        ids = request_ids(to_upstream.sent, upstream_session)
        with node.serve() as running:
            async with node.connect(running) as client:
                for _ in range(5):
                    await increment(client, session)
        later_ids = request_ids(to_upstream.sent[connections:], upstream_session)
    assert ids
    assert len(later_ids) >= 5
    assert not ids & later_ids


@pytest.mark.thorough
async def test_a_session_that_is_closed_after_a_kill_is_closed_at_its_upstream(
    start_upstream: StartUpstream, node: Node, log: Path
) -> None:
    with start_upstream("legacy") as port:
        session = await count_and_kill(node, port)
        [upstream_session] = upstream_sessions(log)
        assert upstream_session is not None
        assert await is_known(port, upstream_session)
        with node.serve() as running:
            async with node.connect(running) as client:
                await client.call_tool("session_close", {"session_id": session})
        assert not await is_known(port, upstream_session)


@pytest.mark.thorough
async def test_a_clean_stop_ends_the_session_of_an_upstream(
    start_upstream: StartUpstream, node: Node, log: Path
) -> None:
    with start_upstream("legacy") as port:
        node.configure(port)
        with node.serve() as running:
            async with node.connect(running) as client:
                session = await opened_session(client)
                await increment(client, session)
            assert await anyio.to_thread.run_sync(running.stop) == 0
        [upstream_session] = upstream_sessions(log)
        assert upstream_session is not None
        assert not await is_known(port, upstream_session)
        with node.serve() as running:
            async with node.connect(running) as client:
                count, notice = await increment(client, session)
                assert count == 1
                assert "generation 1 to 2; Statehold was stopped" in notice


@pytest.mark.thorough
async def test_the_id_of_an_upstreams_session_is_kept_secret(
    start_upstream: StartUpstream, node: Node, log: Path
) -> None:
    """It gives access to the session of the upstream. The database has it, as it has snapshots."""
    shown: list[str] = []
    with start_upstream("legacy") as port:
        node.configure(port)
        with node.serve() as running:
            async with node.connect(running) as client:
                session = await opened_session(client)
                await increment(client, session)
            await kill(running)
        shown += running.lines
        with node.serve() as running:
            async with node.connect(running) as client:
                await increment(client, session)
                for tool, options in (
                    ("session_info", {}),
                    ("session_history", {}),
                    ("session_export", {"secrets": True}),
                ):
                    result = await client.call_tool(tool, {"session_id": session, **options})
                    shown.append(json.dumps(structured(result)))
        shown += running.lines
    [upstream_session] = upstream_sessions(log)
    assert upstream_session is not None
    assert upstream_session not in "".join(shown)
    with sqlite3.connect(node.folder / "data" / "statehold.db") as connection:
        [(token,)] = connection.execute("SELECT resume_token FROM binding").fetchall()
    connection.close()
    assert upstream_session in token
