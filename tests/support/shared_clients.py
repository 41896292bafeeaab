"""Clients of one data folder that share its background server: `statehold --shared`, started as installed."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psutil
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from statehold.server.shared.folder import SERVER_LOCK, SharedFolder
from statehold.server.shared.request import STOP
from statehold.server.sockets.processes import NODES, read_processes
from statehold.server.sockets.request import Unreachable, find_socket

from .gateway_process import JSON, STATEHOLD
from .piped import HELLO, Pipes


@dataclass
class SharedClients:
    """A data folder with its configuration, and the clients that share its background server."""

    config: Path
    data: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def folder(self) -> SharedFolder:
        return SharedFolder(self.data)

    @property
    def socket(self) -> Path:
        """The socket of the server that runs."""
        status = self.status()
        assert status is not None
        return Path(find_socket(self.data / NODES, status["node"]))

    def command(self, *options: str) -> list[str]:
        flags = ["--config", str(self.config), "--data", str(self.data)]
        return [*STATEHOLD, "--shared", *flags, *options]

    @asynccontextmanager
    async def connect(
        self, *options: str, mode: Any = "legacy", **more: Any
    ) -> AsyncGenerator[Client]:
        """Connect a client of the SDK over stdio."""
        command, *arguments = self.command(*options)
        parameters = StdioServerParameters(command=command, args=arguments, env=dict(self.env))
        async with Client(stdio_client(parameters), mode=mode, cache=None, **more) as client:
            yield client

    @asynccontextmanager
    async def piped(self, *options: str, hello: bool = True) -> AsyncGenerator[Pipes]:
        """Run a client whose lines the test writes and reads itself, up to the end of its handshake."""
        async with await anyio.open_process(
            self.command(*options), stderr=subprocess.PIPE
        ) as process:
            try:
                pipes = Pipes(process)
                if hello:
                    await pipes.send(*HELLO)
                    await pipes.answer(0)
                yield pipes
            finally:
                if process.returncode is None:
                    process.kill()

    def run(self, *options: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a client that writes some lines and closes its side."""
        return subprocess.run(
            self.command(*options), input=given, capture_output=True, timeout=90, check=False
        )

    def status(self) -> JSON | None:
        """Return the status of the server, None if none runs."""
        servers = [each for each in read_processes(self.data) if each.get("kind")]
        return dict(servers[0]) if servers else None

    def status_pids(self) -> list[int]:
        """Return the pids of the servers that run, the one that commands use first."""
        return [each["pid"] for each in read_processes(self.data) if each.get("kind")]

    def servers(self) -> list[int]:
        """Return the pids of the servers of this data folder, those that start or end included."""
        pids: list[int] = []
        for process in psutil.process_iter(["cmdline"]):
            words: list[str] = process.info["cmdline"] or []
            if "serve" in words and f"--data={self.data}" in words:
                pids.append(process.pid)
        return pids

    def wait_ended(self, *, within: float = 60.0) -> None:
        """Wait until the server has ended, and its child processes with it."""
        if not self.folder.path.exists():
            return
        processes = [psutil.Process(pid) for pid in self.servers()]
        processes += [child for one in processes for child in one.children(recursive=True)]
        with self.folder.lock(SERVER_LOCK, within=within) as has_ended:
            assert has_ended, self.folder.log.read_text()
        _, alive = psutil.wait_procs(processes, timeout=20)
        assert not alive, [(one, one.cmdline(), one.parent()) for one in alive]

    def stop(self) -> None:
        """End the server, if one runs, and check that nothing is left of it."""
        try:
            self.folder.send(STOP, {}).connection.close()
        except Unreachable:
            was_running = False
        else:
            was_running = True
        self.wait_ended()
        assert self.servers() == []
        assert not (was_running and self.folder.is_marked())


__all__ = ["SharedClients"]
