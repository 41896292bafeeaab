"""Three nodes, each with a data folder of its own as on a machine of its own, their database, and HAProxy in front."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import anyio
import httpx2
from anyio.abc import TaskGroup
from mcp import Client

from ..browser.bare import shell
from ..gateways import statehold
from ..plan import MODE, Era, python
from ..processes import accepting, free_port
from ..soak.deployment import services
from ..soak.findings import Findings
from ..soak.programs import HttpUpstream, Programs, mount_disk, serving, unmount_disk, wait_for
from .database import Database
from .proxy import find_program, proxy_command
from .relay import Flow, Relays, run_relays

NODES: Final = ("first", "second", "third")
NODE_PROGRAM: Final = Path(__file__).with_name("node.py")
TRUTH: Final = "truth.jsonl"
FENCED: Final = 75
"""The exit code of a node that another one declared dead."""
RESTART_SECONDS: Final = 0.2
READY_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
KEY: Final = "0123456789-a-key-of-the-chaos-alone"

CONFIG: Final = """\
[server]
allowed_hosts = ["127.0.0.1:*"]
[store]
url = "{url}"
[cluster]
enabled = true
keys = ["{key}"]
listen = "127.0.0.1:{listen}"
advertise = "127.0.0.1:{advertise}"
lease_seconds = {lease}
"""


@dataclass(slots=True)
class ClusterNode:
    """A `statehold serve` that is started again after each end, whichever it was, while it is supervised."""

    name: str
    data: Path
    config: Path
    port: int = field(default_factory=free_port)
    clock: float = 0.0
    """Seconds by which its wall clock is ahead from its next start on."""
    process: subprocess.Popen[bytes] | None = None
    expected: set[int] = field(default_factory=set[int])
    """Exit codes that are no fault, besides FENCED."""
    is_supervised: bool = True
    may_start: anyio.Event | None = None
    """When set by a run, the next start waits for it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def database_link(self) -> str:
        return f"database of {self.name}"

    @property
    def peer_link(self) -> str:
        return f"peers of {self.name}"


class Cluster:
    """All processes of a run, and their folder."""

    def __init__(
        self,
        folder: Path,
        findings: Findings,
        *,
        lease_seconds: float,
        without: str | None = None,
        follow: bool = True,
        machines: int = len(NODES),
        more_services: str = "",
    ) -> None:
        """`follow`: have a standby of the database. `machines`: with 1, all nodes share a data folder."""
        self.folder = folder
        self.lease_seconds = lease_seconds
        self.truth = folder / TRUTH
        self.programs = Programs(folder)
        self.upstream = HttpUpstream(self.programs, self.truth)
        self.has_browser = shell() is not None
        self.findings = findings
        self.nodes = [
            ClusterNode(name, folder / f"data-{number % machines}", folder / f"{name}.toml")
            for number, name in enumerate(NODES)
        ]
        self.disks: list[Path] = []
        """The data folders that are small disks, where they can be mounted."""
        self._without = without
        self._follow = follow
        self._more_services = more_services
        self._proxy_port = free_port()
        self._relays: Relays
        self.database: Database

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[Self]:
        """Start everything; at the end of the block, end whatever is left of it."""
        self.programs.logs.mkdir(parents=True)
        self.truth.touch()
        async with run_relays() as self._relays:
            self.database = Database(self._relays)
            try:
                async with anyio.create_task_group() as supervisors:
                    await self._start(supervisors)
                    yield self
                    supervisors.cancel_scope.cancel()
            finally:
                self.programs.close()
                self.database.stop()
                for disk in self.disks:
                    unmount_disk(disk)

    async def _start(self, supervisors: TaskGroup) -> None:
        await self.database.start(follow=self._follow)
        await self.upstream.start()
        for node in self.nodes:
            await self._prepare(node)
            supervisors.start_soon(self._supervise, node)
            # One after the other: the first one creates the tables.
            await self.wait_until_serving(node)
        await self._start_proxy()

    async def _prepare(self, node: ClusterNode) -> None:
        if not node.data.exists():
            node.data.mkdir(mode=0o700)
            if mount_disk(node.data):
                self.disks.append(node.data)
        listen = free_port()
        text = CONFIG.format(
            url=await self.database.link(node.database_link),
            key=KEY,
            listen=listen,
            advertise=await self._relays.lead(node.peer_link, f"127.0.0.1:{listen}"),
            lease=self.lease_seconds,
        )
        text += services(self.truth, self.upstream.port) + self._more_services
        node.config.write_text(text, encoding="utf-8")

    async def _start_proxy(self) -> None:
        program = find_program()
        if program is None:
            self.findings.remarks.append("proxy: left out, haproxy is not installed")
            return
        ports = [node.port for node in self.nodes]
        command = proxy_command(program, self.folder, self._proxy_port, ports)
        await accepting(self._proxy_port, self.programs.start("haproxy", command))

    @property
    def url(self) -> str:
        """The address of the proxy, that of the first node where there is none."""
        if find_program() is None:
            return self.nodes[0].url
        return f"http://127.0.0.1:{self._proxy_port}/mcp"

    def approval_command(self, request: str) -> list[str]:
        """Return the command that approves a call, on the machine of the first node."""
        node = self.nodes[0]
        return statehold(node.data, node.config, "approvals", "approve", request, "--yes")

    @asynccontextmanager
    async def connect(
        self, transport: str, era: Era, name: str, random: Random
    ) -> AsyncGenerator[Client]:
        mode: Any = MODE[era]
        async with Client(self.url, mode=mode) as client:
            yield client

    # Nodes.

    async def _supervise(self, node: ClusterNode) -> None:
        while node.is_supervised:
            options = [f"--clock={node.clock}"] if node.clock else []
            if self._without:
                options.append(f"--without={self._without}")
            serve = ("serve", "--port", str(node.port), "--config", node.config)
            node.process = self.programs.start(
                node.name,
                python("-P", NODE_PROGRAM, *options, "--", *serve, "--data", node.data),
            )
            while node.process.poll() is None:  # noqa: ASYNC110 - it is the kernel that ends it
                await anyio.sleep(POLL_SECONDS)
            self._judge_end(node, node.process.returncode)
            node.process = None
            await anyio.sleep(RESTART_SECONDS)
            if node.may_start is not None:
                await node.may_start.wait()

    def _judge_end(self, node: ClusterNode, code: int) -> None:
        if code == FENCED:
            self.findings.calls["fenced nodes"] += 1
        elif code not in node.expected:
            text = f"{node.name}: exit code {code}; {self.programs.last_lines(node.name)}"
            self.findings.add("unclean stops", text)

    async def wait_until_serving(self, node: ClusterNode) -> None:
        """Wait until a node serves, also when it has to be started several times."""
        with anyio.fail_after(READY_SECONDS):
            while True:
                process = node.process
                if process is not None and process.poll() is None:
                    try:
                        return await serving(node.port, process)
                    except (RuntimeError, httpx2.TransportError):
                        pass
                await anyio.sleep(POLL_SECONDS)

    def signal(self, node: ClusterNode, number: signal.Signals) -> None:
        if node.process is not None and node.process.poll() is None:
            node.process.send_signal(number)

    async def end(self, node: ClusterNode, number: signal.Signals, *expected: int) -> None:
        """End a node with a signal, and wait until it serves again."""
        process = node.process
        if process is None:
            return
        node.expected |= set(expected)
        self.signal(node, number)
        await wait_for(process)
        while node.process is process:  # noqa: ASYNC110
            await anyio.sleep(POLL_SECONDS)
        if node.is_supervised:
            await self.wait_until_serving(node)
        node.expected -= set(expected)

    @asynccontextmanager
    async def without_database(self, *nodes: ClusterNode) -> AsyncGenerator[None]:
        """While the block runs, a node that cannot start without its database is no fault."""
        for node in nodes:
            node.expected.add(1)
        try:
            yield
        finally:
            for node in nodes:
                await self.wait_until_serving(node)
                node.expected.discard(1)

    async def set_flow(self, link: str, flow: Flow) -> None:
        await self._relays.set_flow(link, flow)

    async def stop(self) -> None:
        """Stop all nodes gracefully, then the HTTP upstream."""
        for node in self.nodes:
            node.is_supervised = False
            await self.end(node, signal.SIGTERM, 0)
        await self.upstream.kill()

    def query(self, statement: str) -> list[dict[str, Any]]:
        return self.database.query_now(statement)
