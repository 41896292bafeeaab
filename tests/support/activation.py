"""Servers on a listening socket that another process holds, as under a socket unit of systemd."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from .gateway_process import STATEHOLD

ACTIVATE = (
    "import os, sys; os.dup2(0, 3); os.environ['LISTEN_PID'] = str(os.getpid()); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Runs a program as systemd does: with a socket, here its standard input, as descriptor 3, and its own pid in LISTEN_PID."""

SUPERVISE = """
import signal, subprocess, sys
child, is_stopped = None, False
def stop(*_):
    global is_stopped
    is_stopped = True
    if child is not None:
        child.terminate()
signal.signal(signal.SIGTERM, stop)
while not is_stopped:
    child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdin=0)
    print(child.pid, flush=True)
    if is_stopped:
        child.terminate()
    child.wait()
"""
"""Holds the socket on its standard input, and starts a program on it again whenever that ends, until SIGTERM."""


class ActivatedServer:
    """A `statehold serve` that its supervisor starts again, on a socket that stays open meanwhile."""

    def __init__(self, url: str, supervisor: Process) -> None:
        self.url = url
        self.pid = 0
        assert supervisor.stdout is not None
        self._pids = BufferedByteReceiveStream(supervisor.stdout)

    async def wait_started(self) -> None:
        """Wait until the supervisor has started the next process."""
        self.pid = int(await self._pids.receive_until(b"\n", 100))

    async def end(self, number: signal.Signals) -> None:
        """End the process with a signal, and wait until the next one is started."""
        os.kill(self.pid, number)
        await self.wait_started()


@asynccontextmanager
async def activated_server(config: Path, data: Path) -> AsyncGenerator[ActivatedServer]:
    """Run a server as installed under a supervisor that holds its socket, until the block ends."""
    serve = [*STATEHOLD, "serve", "--config", str(config), "--data", str(data)]
    command = [sys.executable, "-c", SUPERVISE, ACTIVATE, *serve]
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        supervisor = await anyio.open_process(
            command,
            stdin=listener.fileno(),
            stderr=None,
            env={**os.environ, "LISTEN_FDS": "1"},
        )
    async with supervisor:
        server = ActivatedServer(url, supervisor)
        try:
            await server.wait_started()
            yield server
            supervisor.terminate()
            with anyio.fail_after(30):
                await supervisor.wait()
        finally:
            if supervisor.returncode is None:
                supervisor.kill()
                os.kill(server.pid, signal.SIGKILL)


__all__ = ["ACTIVATE", "ActivatedServer", "activated_server"]
