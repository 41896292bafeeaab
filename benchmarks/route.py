"""One route to the counter: a client of the SDK, its connection, and the processes that belong to it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from .gateways import HEADS, http_command, http_server, log_file, peer, stdio_command
from .peers.gateway import Place
from .plan import COUNTER, MODE, ROOT, Era, North, python
from .processes import accepting, cpu_seconds, free_port, own_children, upstreams_of


@dataclass(slots=True)
class Route:
    """An open connection to the counter. It lives as long as the block that opened it."""

    name: str
    client: Client
    gateway: list[int]
    """The pids of the gateway, none for a direct connection."""
    upstream: list[int]
    more: dict[str, Any]
    """Arguments that every call needs besides those of the tool."""
    tools: dict[str, str] = field(default_factory=dict[str, str])
    """The names that a gateway gave to tools, by their own."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool of the counter and return the text of its result."""
        name = self.tools.get(tool, tool)
        result = await self.client.call_tool(name, {**self.more, **arguments})
        if result.is_error:
            raise RuntimeError(f"{self.name}: {tool} failed: {result.content}")
        return getattr(result.content[0], "text", "")

    def cpu(self) -> tuple[float, float]:
        """Return the processor seconds that the gateway and the counter have used up to now."""
        return cpu_seconds(self.gateway), cpu_seconds(self.upstream)


def possible(name: str, north: North, era: Era, folder: Path) -> str | None:
    """Return why a route cannot be measured, None when it can."""
    if name in HEADS:
        return None
    gateway = peer(name)
    if era == "modern" and not gateway.is_modern:
        return f"{name} speaks no {MODE['modern']}"
    if gateway.command(north, Place(folder)) is None:
        return f"{name} does not serve over {north}"
    problem = gateway.install()
    return None if problem is None else f"{name}: {problem}"


@asynccontextmanager
async def open_route(name: str, north: North, era: Era, folder: Path) -> AsyncGenerator[Route]:
    """Start a gateway, or the counter itself, and connect to it."""
    async with open_place(name, folder) as place:
        start = connect_over_stdio if north == "stdio" else _over_http
        async with start(name, era, place) as (client, pid):
            route = await create_session(name, client)
            for _ in range(3):
                await route.call("inc", {})
            processes = [psutil.Process(pid), *upstreams_of(pid, folder / "data")]
            counter = {
                process.pid for process in processes if process.cmdline()[1:2] == [str(COUNTER)]
            }
            route.gateway = [process.pid for process in processes if process.pid not in counter]
            route.upstream = [*counter, *place.counter_pids]
            yield route


async def create_session(name: str, client: Client, more: dict[str, Any] | None = None) -> Route:
    """Return the route of a client, in a new session of Statehold or in the one that `more` names."""
    if more is None and name in HEADS:
        answer = await client.call_tool("session_create", {})
        assert answer.structured_content is not None, answer
        more = {"session_id": answer.structured_content["session_id"]}
    route = Route(name, client, [], [], more or {})
    if name not in HEADS:
        # Some put a prefix before the names.
        listed = [tool.name for tool in (await client.list_tools()).tools]
        for tool in ("inc", "get", "big"):
            [route.tools[tool]] = [each for each in listed if each in (tool, f"counter-{tool}")]
    return route


@asynccontextmanager
async def open_place(name: str, folder: Path) -> AsyncGenerator[Place]:
    """Take a port, and serve a counter over HTTP for a gateway that connects to one."""
    if name in HEADS or not peer(name).connects:
        yield Place(folder, free_port())
        return
    port = free_port()
    command = python(COUNTER, "--transport", "http", "--port", str(port))
    with http_server(command, folder / "counter") as counter:
        await accepting(port, counter)
        yield Place(folder, free_port(), f"http://127.0.0.1:{port}/mcp", (counter.pid,))


@asynccontextmanager
async def connect_over_stdio(
    name: str, era: Era, place: Place
) -> AsyncGenerator[tuple[Client, int]]:
    command = stdio_command(name, place)
    assert command is not None
    before = own_children()
    with log_file(place.folder) as errors:
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], cwd=str(ROOT), env=_environment(name)
        )
        transport = stdio_client(parameters, errlog=errors)
        async with Client(transport, mode=MODE[era]) as client:
            # The SDK does not tell the pid of its child; no other process is started here meanwhile.
            (pid,) = own_children() - before
            yield client, pid


@asynccontextmanager
async def serve(name: str, place: Place) -> AsyncGenerator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a gateway over HTTP while the block runs; yield its address and its process."""
    command = http_command(name, place)
    assert command is not None
    with http_server(command, place.folder, _environment(name)) as process:
        await accepting(place.port, process)
        prepare = None if name in HEADS else peer(name).prepare
        if prepare is not None:
            await prepare(place)
        yield f"http://127.0.0.1:{place.port}/mcp", process


@asynccontextmanager
async def _over_http(name: str, era: Era, place: Place) -> AsyncGenerator[tuple[Client, int]]:
    async with serve(name, place) as (url, process), Client(url, mode=MODE[era]) as client:
        yield client, process.pid


def _environment(name: str) -> dict[str, str] | None:
    if name in HEADS or not peer(name).environment:
        return None
    return {**os.environ, **peer(name).environment}
