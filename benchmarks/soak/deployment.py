"""The processes of a soak: two serving nodes on one data folder, an HTTP upstream, and commands of nodes over stdio."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import anyio
import anyio.to_thread
import httpx2

from ..browser.bare import shell
from ..gateways import statehold
from ..plan import COUNTER, QUICK, python
from ..processes import START_SECONDS, accepting, free_port
from .findings import Findings

DISK_BYTES: Final = 512 * 2**20
STOP_SECONDS: Final = 30.0
UPSTREAM: Final = "upstream"
"""The name of the log of the HTTP upstream."""

CONFIG: Final = """\
[limits]
live_sessions = 100
[recovery]
attempts = 5
backoff = [0.2, 1, 5, 10, 20]
[services.quick]
command = {python}
args = {quick}
[services.web]
url = "http://127.0.0.1:{port}/mcp"
prefix = "web_"
"""
BROWSER: Final = """\
[services.browser]
executable = {shell}
private = true
checkpoint = 0.5
"""


@dataclass(slots=True)
class Node:
    """A `statehold serve` that is started again after each end."""

    name: str
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


class Deployment:
    """All processes of a soak and their folder. Leaving the block kills what still runs and unmounts the disk."""

    def __init__(self, folder: Path, findings: Findings) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.truth = folder / "truth.jsonl"
        """Each upstream appends a line for each call before it runs it."""
        self.logs = folder / "logs"
        self.nodes = [Node("first", free_port()), Node("second", free_port())]
        self.upstream_port = free_port()
        self.upstream: subprocess.Popen[bytes] | None = None
        self.has_browser = shell() is not None
        self.has_disk = False
        self._findings = findings
        self._files: list[IO[bytes]] = []
        self._config = folder / "statehold.toml"

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True)
        self.data.mkdir(mode=0o700)
        self.truth.touch()
        self.has_disk = self._mount()
        if not self.has_disk:
            self._findings.remarks.append("full disk: left out, as no tmpfs can be mounted here")
        if not self.has_browser:
            self._findings.remarks.append("browser: left out, no chromium-headless-shell")
        text = CONFIG.format(
            python=json.dumps(sys.executable),
            quick=json.dumps(["-S", "-E", str(QUICK), "--log", str(self.truth)]),
            port=self.upstream_port,
        )
        if self.has_browser:
            text += BROWSER.format(shell=json.dumps(shell()))
        self._config.write_text(text, encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in (*(node.process for node in self.nodes), self.upstream):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        for file in self._files:
            file.close()
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self.data)], check=False)

    def _mount(self) -> bool:
        if sys.platform != "linux" or os.geteuid() != 0:
            return False
        options = f"size={DISK_BYTES},mode=0700"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.data)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def log(self, name: str) -> Path:
        """Return the file with the stderr of the processes of this name."""
        return self.logs / f"{name}.log"

    def command(self, *arguments: str) -> list[str]:
        """Return the command of a node; without arguments it serves stdio."""
        return statehold(self.data, self._config, *arguments)

    def _spawn(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        file = self.log(name).open("ab")
        self._files.append(file)
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=self.folder
        )

    async def start(self) -> None:
        """Start everything and wait until it accepts connections."""
        await self.start_upstream()
        for node in self.nodes:
            await self.start_node(node)

    async def start_node(self, node: Node) -> None:
        node.process = self._spawn(node.name, self.command("serve", "--port", str(node.port)))
        await accepting(node.port, node.process)
        # The port is open before the node serves, and before it minds a signal.
        async with httpx2.AsyncClient(timeout=START_SECONDS, trust_env=False) as client:
            await client.get(f"http://127.0.0.1:{node.port}/health")

    async def start_upstream(self) -> None:
        serve = ("--transport", "http", "--port", str(self.upstream_port), "--era", "legacy")
        command = python(COUNTER, *serve, "--log", self.truth)
        self.upstream = self._spawn(UPSTREAM, command)
        await accepting(self.upstream_port, self.upstream)

    async def stop_node(self, node: Node) -> None:
        """Stop a node with SIGTERM; an exit code other than 0, or none in time, is a finding."""
        process = node.process
        assert process is not None
        if process.poll() is not None:
            self._findings.add("unclean stops", f"{node.name} had ended with {process.returncode}")
            return
        process.terminate()
        code = await wait_for(process)
        if code != 0:
            text = f"no end within {STOP_SECONDS:g} s" if code is None else f"exit code {code}"
            last_lines = (
                self.log(node.name).read_text(encoding="utf-8", errors="replace").splitlines()
            )
            self._findings.add(
                "unclean stops", f"{node.name}: {text}; {' / '.join(last_lines[-3:])}"
            )

    async def stop(self) -> None:
        """Stop all nodes, then the HTTP upstream."""
        for node in self.nodes:
            await self.stop_node(node)
        if self.upstream is not None:
            self.upstream.kill()
            await wait_for(self.upstream)


async def wait_for(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a process, None (and kill it) when it does not end in time."""
    try:
        return await anyio.to_thread.run_sync(process.wait, STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        return None
