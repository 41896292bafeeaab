"""The processes of a soak: two serving nodes on one data folder, an HTTP upstream, and commands of nodes over stdio."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from ..browser.bare import shell
from ..gateways import statehold
from ..plan import MODE, QUICK, Era
from ..processes import free_port
from .findings import Findings
from .programs import (
    STOP_SECONDS,
    HttpUpstream,
    Programs,
    mount_disk,
    serving,
    unmount_disk,
    wait_for,
)
from .tasks import guarded_service

CONFIG: Final = """\
[keeper]
linger_seconds = 10  # less than check_processes() waits
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


def services(truth: Path, upstream_port: int) -> str:
    """Return the configuration of the services of a soak: an upstream over stdio, one over HTTP, and browsers."""
    text = CONFIG.format(
        python=json.dumps(sys.executable),
        quick=json.dumps(["-S", "-E", str(QUICK), "--log", str(truth)]),
        port=upstream_port,
    )
    return text if shell() is None else text + BROWSER.format(shell=json.dumps(shell()))


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
        self.programs = Programs(folder)
        self.nodes = [Node("first", free_port()), Node("second", free_port())]
        self.upstream = HttpUpstream(self.programs, self.truth)
        self.has_browser = shell() is not None
        self.has_disk = False
        self._findings = findings
        self._config = folder / "statehold.toml"

    def __enter__(self) -> Self:
        self.programs.logs.mkdir(parents=True)
        self.data.mkdir(mode=0o700)
        self.truth.touch()
        self.has_disk = mount_disk(self.data)
        if not self.has_disk:
            self._findings.remarks.append("full disk: left out, as no tmpfs can be mounted here")
        if not self.has_browser:
            self._findings.remarks.append("browser: left out, no chromium-headless-shell")
        text = services(self.truth, self.upstream.port) + guarded_service(self.truth)
        self._config.write_text(text, encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.programs.close()
        if self.has_disk:
            unmount_disk(self.data)

    @property
    def url(self) -> str:
        """The address that is asked for the states at the end."""
        return self.nodes[0].url

    def query(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a query on the database of the nodes."""
        file = next(self.data.glob("*.db"))
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(statement)]

    @asynccontextmanager
    async def connect(
        self, transport: str, era: Era, name: str, random: Random
    ) -> AsyncGenerator[Client]:
        """Connect a client to any serving node, or to a node of its own over stdio, whose log has this name."""
        mode: Any = MODE[era]
        if transport == "http":
            async with Client(random.choice(self.nodes).url, mode=mode) as client:
                yield client
            return
        command, *arguments = self.command()
        with self.programs.log(name).open("a", encoding="utf-8") as log:
            server = stdio_client(StdioServerParameters(command=command, args=arguments), log)
            async with Client(server, mode=mode) as client:
                yield client

    def command(self, *arguments: str) -> list[str]:
        """Return the command of a node; without arguments it serves stdio."""
        return statehold(self.data, self._config, *arguments)

    async def start(self) -> None:
        """Start everything and wait until it accepts connections."""
        await self.upstream.start()
        for node in self.nodes:
            await self.start_node(node)

    async def start_node(self, node: Node) -> None:
        node.process = self.programs.start(
            node.name, self.command("serve", "--port", str(node.port))
        )
        await serving(node.port, node.process)

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
            last_lines = self.programs.last_lines(node.name)
            self._findings.add("unclean stops", f"{node.name}: {text}; {last_lines}")

    async def stop(self) -> None:
        """Stop all nodes, then the HTTP upstream."""
        for node in self.nodes:
            await self.stop_node(node)
        await self.upstream.kill()
