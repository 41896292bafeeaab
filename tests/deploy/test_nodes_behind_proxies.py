"""Nodes behind nginx and HAProxy that are killed, that drain, or that get all calls of a session."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import httpx2
import pytest
from support.databases import PostgreSQL
from support.gateway_process import JSON, Era, Running, Way, count, opened_session, serving, toml
from support.machines import cluster
from support.reverse_proxies import StartProxy

from statehold.client import State, connect
from statehold.client.errors import OutcomeUnknown, StateConflict

pytestmark = pytest.mark.thorough

WRITES = 40
ERAS: tuple[Era, ...] = ("modern", "legacy")


@asynccontextmanager
async def behind_proxy(
    start_proxy: StartProxy,
    config_file: Path,
    folder: Path,
    *,
    by_session: bool = False,
    machines: int = 1,
) -> AsyncGenerator[tuple[str, Running, Running]]:
    """The URL of a proxy in front of two new nodes, and the nodes. With two machines, each has its own data folder."""
    with (
        serving(config_file, folder / "data1") as first,
        serving(config_file, folder / f"data{machines}") as second,
        start_proxy(
            folder / "proxy", [port_of(first), port_of(second)], by_session=by_session
        ) as url,
    ):
        yield url, first, second


@pytest.mark.fault
async def test_no_acknowledged_write_is_lost_when_a_node_is_killed(
    start_proxy: StartProxy, config_file: Path, tmp_path: Path
) -> None:
    async with behind_proxy(start_proxy, config_file, tmp_path) as (url, first, second):
        sessions = [
            session
            for node in (first, second)
            for session in await sessions_of(node.url, config_file)
        ]
        written = 0
        is_under_way = anyio.Event()

        async def write(session_id: str) -> None:
            nonlocal written
            async with connect(url) as client:
                session = await client.get(session_id)
                for n in range(1, WRITES + 1):
                    await write_once(session.state, n)
                    written += 1
                    if written == WRITES:
                        is_under_way.set()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for session_id in sessions:
                    tasks.start_soon(write, session_id)
                await is_under_way.wait()
                second.process.send_signal(signal.SIGKILL)
        assert written == WRITES * len(sessions)


@pytest.mark.fault
async def test_no_call_fails_while_a_node_of_a_cluster_drains(
    start_proxy: StartProxy, settings: JSON, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    config = tmp_path / "statehold.toml"
    in_cluster = {**cluster(postgresql.fresh()), "timeouts": {"close_grace": 5}}
    config.write_text(toml({**settings, **in_cluster}))
    async with behind_proxy(start_proxy, config, tmp_path, machines=2) as (url, first, second):
        sessions = [
            session for node in (first, second) for session in await sessions_of(node.url, config)
        ]
        has_ended = False
        unknown: list[str] = []

        async def call(session_id: str, begun: anyio.Event) -> None:
            n = 0
            async with connect(url) as client:
                session = await client.get(session_id)
                while not has_ended or n < WRITES:
                    n += 1
                    assert await session.state.update({"n": n}) == n
                    try:
                        assert not (await session.call("inc")).is_error
                    except OutcomeUnknown:
                        unknown.append(session_id)
                    if n == WRITES // 4:
                        begun.set()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                begun = [anyio.Event() for _ in sessions]
                for session_id, event in zip(sessions, begun, strict=True):
                    tasks.start_soon(call, session_id, event)
                for event in begun:
                    await event.wait()
                assert await anyio.to_thread.run_sync(second.stop) == 0
                has_ended = True
        # A proxy may send a request on a connection that the node has just closed.
        assert len(unknown) <= 1


async def write_once(state: State, n: int) -> None:
    """Write version `n` of a state; read it when an outcome is unknown, and write again if the write did not run."""
    version = n - 1
    while version != n:
        try:
            version = await state.update({"n": n}, if_version=n - 1)
        except (OutcomeUnknown, StateConflict):
            # A repeat conflicts when the first try ran and its answer was lost.
            version = (await state.read()).version
            assert version in (n - 1, n)


async def sessions_of(url: str, config_file: Path) -> list[str]:
    """Create sessions that a node owns."""
    way = Way("http", "modern", config_file, config_file.parent, url=url)
    async with way.connect() as client:
        sessions = [await opened_session(client) for _ in range(2)]
        for session in sessions:
            assert await count(client, session) == 1
    return sessions


async def test_all_calls_of_a_session_reach_one_node(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    with answering() as first, answering() as second:
        ports = [first.server_port, second.server_port]
        with start_proxy(tmp_path / "proxy", ports, by_session=True) as url:
            async with httpx2.AsyncClient(base_url=url, timeout=30) as http:

                async def reached(**headers: str) -> set[str]:
                    return {(await http.post("/mcp", headers=headers)).text for _ in range(6)}

                nodes = [await reached(**{"mcp-param-session-id": f"sh_{n}"}) for n in range(20)]
                assert all(len(node) == 1 for node in nodes)
                both = {str(port) for port in ports}
                assert {port for ports in nodes for port in ports} == both
                assert await reached() == both


async def test_a_client_that_repeats_the_session_as_a_header_is_answered(
    start_proxy: StartProxy, settings: JSON, tmp_path: Path
) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({**settings, "server": {"session_header": True}}))
    async with behind_proxy(start_proxy, config, tmp_path, by_session=True) as (url, _, _):
        for era in ERAS:
            async with Way("http", era, config, tmp_path, url=url).connect() as client:
                # From the list the client knows which argument to repeat; the server refuses calls without the header.
                await client.list_tools()
                for _ in range(8):
                    session = await opened_session(client)
                    assert [await count(client, session) for _ in range(3)] == [1, 2, 3]


class PortHandler(BaseHTTPRequestHandler):
    """Answers every request with its own port."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        assert isinstance(self.server, ThreadingHTTPServer)
        body = str(self.server.server_port).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def answering() -> Generator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), PortHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def port_of(node: Running) -> int:
    return int(node.url.rpartition(":")[2])
