"""A running server is replaced under load: no connection is refused, no call fails, and the counters go on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import psutil
import pytest
from mcp import Client
from support.agent import Agent
from support.counting_site import counting_site
from support.gateway_process import (
    STATEHOLD,
    Way,
    count,
    meta_of,
    opened_session,
    service,
    statehold,
    structured,
    text_of,
    toml,
)
from support.process_exit import until_gone
from support.runs import wait_for_call
from support.selection import matrix
from support.waiting import until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
    pytest.mark.fault,
]

CALLERS = 4
CALLS_AFTER = 5
"""Calls of each caller after the old server has ended."""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def config(tmp_path: Path, log: Path) -> Path:
    path = tmp_path / "statehold.toml"
    services = {"quick": service("quick", "--log", str(log))}
    path.write_text(toml({"timeouts": {"close_grace": 3}, "services": services}))
    return path


@dataclass
class Server:
    """The server of one address. Its processes replace each other."""

    config: Path
    data: Path
    port: int
    command: Sequence[str] = tuple(STATEHOLD)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    pids: list[int] = field(default_factory=list[int])
    """The pids of the processes that answered, in order."""
    second_answered: anyio.Event = field(default_factory=anyio.Event)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        files = ["--config", str(self.config), "--data", str(self.data)]
        process = subprocess.Popen(
            [*self.command, "serve", *files, "--port", str(self.port), *options],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[subprocess.Popen[bytes]]:
        """Run it until the block ends, with all processes that replaced the first one."""
        # Where nothing runs, --replace only starts.
        first = self.start("--replace")
        try:
            await until(self.accepts)
            yield first
        finally:
            try:
                await until_gone(*self.send_signal(signal.SIGTERM), seconds=20)
            finally:
                self.send_signal(signal.SIGKILL)
                for process in self.processes:
                    process.wait(5)

    def send_signal(self, number: int) -> list[int]:
        """Send a signal to all processes, also to a successor that has not answered. Return their pids."""
        pids: list[int] = []
        for process in psutil.process_iter(["cmdline"]):
            line: list[str] = process.info["cmdline"] or []
            if "serve" in line and str(self.data) in line:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
                    pids.append(process.pid)
        return pids

    async def connect(self) -> None:
        """Open a connection, and note the process that answers on it."""
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.get(f"http://127.0.0.1:{self.port}/livez")
        pid = answer.json()["pid"]
        if pid not in self.pids:
            self.pids.append(pid)
        if len(self.pids) == 2:
            self.second_answered.set()

    async def accepts(self) -> bool:
        with suppress(httpx2.ConnectError):
            await self.connect()
        return bool(self.pids)

    async def connect_repeatedly(self, end: anyio.Event) -> None:
        while not end.is_set():
            await self.connect()
            await asyncio.sleep(0.005)

    def clients(self) -> Way:
        url = f"http://127.0.0.1:{self.port}"
        return Way("http", "modern", self.config, self.data, url=url)


@dataclass
class Caller:
    """Calls a counter in a session of its own, until it has made `remaining` calls once `ends` is set."""

    number: int
    counts: list[int] = field(default_factory=list[int])
    generations: set[int] = field(default_factory=set[int])

    async def run(self, client: Client, session: str, ends: anyio.Event) -> None:
        remaining = CALLS_AFTER
        while remaining:
            remaining -= ends.is_set()
            operation: Any = {"statehold/operation_id": f"{self.number}-{len(self.counts)}"}
            result = await client.call_tool(
                "inc", {"session_id": session}, meta=operation if self.number % 2 else None
            )
            self.counts.append(structured(result)["count"])
            self.generations.add(meta_of(result)["statehold/session"]["generation"])


async def hold(client: Client, fifo: Path, answers: list[str]) -> None:
    """Make a call that the upstream answers when somebody opens the FIFO for writing."""
    session = await opened_session(client)
    result = await client.call_tool("hold", {"session_id": session, "fifo": str(fifo)})
    answers.append(text_of(result))


async def open_for_writing(fifo: Path) -> None:
    """Open a FIFO for writing as soon as a process reads it, and close it."""

    def has_opened() -> bool:
        with suppress(OSError):
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            return True
        return False

    await until(has_opened)


@pytest.mark.parametrize("how", matrix("forked", "option", "signal"))
async def test_a_server_is_replaced_under_load(
    config: Path, data: Path, port: int, log: Path, tmp_path: Path, how: str
) -> None:
    command = statehold() if how == "forked" else STATEHOLD
    server, ends = Server(config, data, port, command), anyio.Event()
    callers, answers = [Caller(number) for number in range(CALLERS)], list[str]()
    os.mkfifo(fifo := tmp_path / "fifo")
    async with server.running() as old, anyio.create_task_group() as held_calls:
        async with server.clients().connect() as client, anyio.create_task_group() as tasks:
            held_calls.start_soon(hold, client, fifo, answers)
            await wait_for_call(log, "hold")
            for caller in callers:
                tasks.start_soon(caller.run, client, await opened_session(client), ends)
            tasks.start_soon(server.connect_repeatedly, ends)
            if how == "signal":
                old.send_signal(signal.SIGUSR2)
            else:
                server.start("--replace")
            with anyio.fail_after(30):
                await server.second_answered.wait()
                # The old process holds this call.
                await open_for_writing(fifo)
            assert await anyio.to_thread.run_sync(old.wait, 30) == 0
            ends.set()
        assert answers == ["held"]
        for caller in callers:
            assert caller.counts == [*range(1, len(caller.counts) + 1)]
            assert caller.generations == {1}
        assert len(server.pids) == 2
        if how != "forked":
            assert server.pids[0] == old.pid


@pytest.mark.thorough
async def test_a_successor_that_is_ended_while_it_starts_leaves_the_server_as_it_is(
    config: Path, data: Path, port: int, tmp_path: Path
) -> None:
    server = Server(config, data, port)
    async with server.running() as old, server.clients().connect() as client:
        session = await opened_session(client)
        assert await count(client, session) == 1
        # The successor waits for this service before it replaces the server.
        started = tmp_path / "started"
        program = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(60)"
        with config.open("a") as file:
            file.write(
                toml({"services": {"silent": {"command": sys.executable, "args": ["-c", program]}}})
            )
        successor = server.start("--replace")
        await until(started.exists)
        # While the server is stopped, the next connection is the successor's.
        old.send_signal(signal.SIGSTOP)
        with anyio.fail_after(30):
            await server.connect()
        old.send_signal(signal.SIGCONT)
        assert server.pids == [old.pid, successor.pid]
        successor.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(successor.wait, 30) == 0
        assert old.poll() is None
        assert await count(client, session) == 2


async def wait_for_status(client: Client, session: str, status: str) -> None:
    async def has_status() -> bool:
        info = structured(await client.call_tool("session_info", {"session_id": session}))
        return info["status"] == status

    await until(has_status, within=30)


@pytest.mark.thorough
async def test_pages_go_on_in_the_next_server(
    config: Path, data: Path, port: int, headless_shell: str
) -> None:
    browser = {"executable": headless_shell, "outlive": True, "private": True}
    config.write_text(  # noqa: ASYNC240
        toml({"timeouts": {"close_grace": 10}, "services": {"browser": browser}})
    )
    server, answers = Server(config, data, port), list[str]()

    async def hold_page(agent: Agent) -> None:
        answers.append(await agent.evaluate("fetch('/held').then(answer => answer.text())"))

    with counting_site() as site:
        async with server.running() as old, server.clients().connect() as client:
            sessions = [await opened_session(client) for _ in range(3)]
            agents = [Agent(client, session) for session in sessions]
            for agent in agents:
                await agent.said("browser_navigate", url=site.url)
                await agent.evaluate("clicks += 5")
            async with anyio.create_task_group() as tasks:
                # All sessions have the same browser.
                tasks.start_soon(hold_page, agents[1])
                assert await anyio.to_thread.run_sync(site.is_held.wait, 30)
                server.start("--replace")
                await wait_for_status(client, sessions[0], "paused")
                result = await agents[0].evaluate("(clicks += 1)")
                assert "Note from Statehold" not in result
                assert "\n6" in result
                assert old.poll() is None
                site.release.set()
            assert await anyio.to_thread.run_sync(old.wait, 30) == 0
            assert "held" in answers[0]
            # The next server resumes it without a call.
            await wait_for_status(client, sessions[2], "idle")
            for agent, clicks in zip(agents, (6, 5, 5), strict=True):
                result = await agent.evaluate("JSON.stringify([clicks, document.cookie])")
                assert "Note from Statehold" not in result
                assert f'[{clicks},\\"login=ok\\"]' in result
                info = structured(await agent.call("session_info"))
                assert info["generation"] == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--ephemeral"], "leave out ephemeral"),
        (["--port", "0"], "give the port of the running server"),
        (["--workers", "2"], "several processes cannot be replaced"),
        (["--shared"], "a newer client replaces that server"),
    ],
)
def test_options_that_exclude_a_replacement_are_refused_with_the_remedy(
    data: Path, options: Sequence[str], problem: str
) -> None:
    command = [*statehold(), "serve", "--data", str(data), "--replace", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert problem in ended.stderr


@pytest.mark.thorough
async def test_the_server_of_another_data_folder_is_not_replaced(
    config: Path, data: Path, port: int, tmp_path: Path
) -> None:
    async with Server(config, data, port).running() as old:
        other = Server(config, tmp_path / "other", port).start("--replace")
        try:
            assert await anyio.to_thread.run_sync(other.wait, 30) == 2
        finally:
            other.kill()
        assert old.poll() is None
