"""Socket activation: a server on the listening socket that systemd opened, and its notices about its state."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from anyio import create_task_group, to_thread
from support.activation import ACTIVATE
from support.fork_server import ForkServer
from support.gateway_process import (
    STATEHOLD,
    Way,
    opened_session,
    pid_at,
    service,
    text_of,
    toml,
)
from support.runs import wait_for_call
from support.selection import matrix

from statehold.server.config.sections import TimeoutSettings
from statehold.sessions.transitions.close import DRAIN_BOUND

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
FORKED = (
    "import os, runpy; os.dup2(0, 3); os.environ['LISTEN_PID'] = str(os.getpid()); "
    "runpy.run_module('statehold', run_name='__main__', alter_sys=True)"
)
"""Runs Statehold as ACTIVATE does, in a program of the fork server."""


@contextmanager
def activated(
    listener: socket.socket,
    folder: Path,
    *options: str,
    sockets: int = 1,
    notify: str = "",
    fork_server: ForkServer | None = None,
) -> Generator[subprocess.Popen[str]]:
    """Run `statehold serve` on a socket until the block ends, as installed or forked from the fork server."""
    words = ["serve", "--data", str(folder / "data"), *options]
    if fork_server is None:
        command = [sys.executable, "-c", ACTIVATE, *STATEHOLD, *words]
    else:
        command = fork_server.command("-c", FORKED, *words)
    with subprocess.Popen(
        command,
        env={**os.environ, "LISTEN_FDS": str(sockets), "NOTIFY_SOCKET": notify},
        stdin=listener.fileno(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def notices(tmp_path: Path) -> Generator[socket.socket]:
    """The socket on which systemd receives the notices of a server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(tmp_path / "notices"))
        notices.settimeout(30)
        yield notices


@pytest.mark.parametrize("how", matrix("forked", "as installed"))
def test_clients_wait_while_a_server_on_the_socket_of_systemd_restarts(
    tmp_path: Path, notices: socket.socket, fork_server: ForkServer, how: str
) -> None:
    forks = fork_server if how == "forked" else None
    pids: set[int] = set()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for _ in range(2):
            # The client connects before there is a server.
            with (
                socket.create_connection(("127.0.0.1", port)) as early,
                activated(
                    listener, tmp_path, notify=notices.getsockname(), fork_server=forks
                ) as process,
            ):
                early.settimeout(30)
                early.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert early.recv(4096).startswith(b"HTTP/1.1 200 OK")
                assert notices.recv(100) == b"READY=1"
                pids.add(pid := pid_at(port))
                assert forks is not None or pid == process.pid
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
                assert notices.recv(100) == b"STOPPING=1"
        assert len(pids) == 2


async def test_new_connections_wait_for_the_next_process_while_calls_end(
    tmp_path: Path, notices: socket.socket, fork_server: ForkServer
) -> None:
    log, config, fifo = tmp_path / "calls", tmp_path / "statehold.toml", tmp_path / "fifo"
    config.write_text(toml({"services": {"quick": service("quick", "--log", str(log))}}))
    os.mkfifo(fifo)
    answers: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as early:
        early.settimeout(30)
        port = listener.getsockname()[1]
        url, options = f"http://127.0.0.1:{port}", ("--config", str(config))
        run = partial(activated, listener, tmp_path, *options, fork_server=fork_server)

        async def hold() -> None:
            async with Way("http", "modern", config, tmp_path, url=url).connect() as client:
                session = await opened_session(client)
                call = await client.call_tool("hold", {"session_id": session, "fifo": str(fifo)})
                answers.append(text_of(call))

        with run(notify=notices.getsockname()) as process:
            assert await to_thread.run_sync(notices.recv, 100) == b"READY=1"
            ending = await to_thread.run_sync(pid_at, port)
            async with create_task_group() as tasks:
                tasks.start_soon(hold)
                await wait_for_call(log, "hold")
                os.kill(ending, signal.SIGTERM)
                assert await to_thread.run_sync(notices.recv, 100) == b"STOPPING=1"
                early.connect(("127.0.0.1", port))
                early.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                # The call is answered, and its process ends.
                fifo.write_text("")
            assert answers == ["held"]
            assert await to_thread.run_sync(process.wait, 20) == 0
        with run():
            answer = await to_thread.run_sync(early.recv, 4096)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert f'"pid":{ending}'.encode() not in answer.replace(b" ", b"")


@pytest.mark.thorough
def test_the_abstract_address_of_notices_is_understood(tmp_path: Path) -> None:
    name = f"statehold-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        notices.bind(f"\0{name}")
        notices.settimeout(30)
        with activated(listener, tmp_path, notify=f"@{name}"):
            assert notices.recv(100) == b"READY=1"


def refusal(
    fork_server: ForkServer, listener: socket.socket, folder: Path, *options: str, sockets: int = 1
) -> str:
    """Run `statehold serve`, forked from the fork server, on a socket that it refuses. Return its error."""
    with activated(listener, folder, *options, sockets=sockets, fork_server=fork_server) as process:
        assert process.wait(30) == 2
        assert process.stderr is not None
        return process.stderr.read()


def test_a_socket_that_others_reach_needs_a_configuration_for_that(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        error = refusal(fork_server, listener, tmp_path)
    assert "systemd listens on 0.0.0.0, and server.host is 127.0.0.1" in error


def test_other_sockets_are_refused_with_the_remedy(tmp_path: Path, fork_server: ForkServer) -> None:
    with socket.socket(socket.AF_UNIX) as unix, socket.create_server(("127.0.0.1", 0)) as tcp:
        unix.bind(str(tmp_path / "unix"))
        unix.listen()
        error = refusal(fork_server, unix, tmp_path)
        assert "the socket of systemd is no listening TCP socket" in error
        error = refusal(fork_server, tcp, tmp_path, sockets=2)
        assert "systemd passes 2 sockets, and one is served" in error


def test_workers_need_sockets_of_their_own(tmp_path: Path, fork_server: ForkServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        error = refusal(fork_server, listener, tmp_path, "--workers", "2")
    assert "disable the socket unit" in error


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_units_are_valid(tmp_path: Path) -> None:
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/usr/local/bin/statehold", sys.executable)
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        done.returncode,
        [line for line in done.stderr.splitlines() if "statehold" in line],
    ) == (0, [])


def test_the_unit_gives_a_server_the_time_to_end_its_calls_and_to_save_its_sessions() -> None:
    unit = (UNITS / "statehold.service").read_text()
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(seconds) >= TimeoutSettings().close_grace + DRAIN_BOUND + 10


def test_the_unit_spares_the_keeper_and_its_children_after_a_crash() -> None:
    unit = (UNITS / "statehold.service").read_text()
    assert re.findall(r"^KillMode=(.*)$", unit, re.MULTILINE) == ["process"]
