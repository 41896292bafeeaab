"""One route to the counter: a client of the SDK, its connection, and the processes that belong to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from .gateways import HEADS, http_command, http_server, log_file, stdio_command
from .plan import MODE, ROOT, Era, North
from .processes import accepting, cpu_seconds, free_port, own_children, upstreams_of


@dataclass(slots=True)
class Route:
    """An open connection to the counter. It lives as long as the block that opened it."""

    name: str
    client: Client
    gateway: int | None
    """The pid of the gateway, None for a direct connection."""
    upstream: list[int]
    more: dict[str, Any]
    """Arguments that every call needs besides those of the tool."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> None:
        result = await self.client.call_tool(tool, {**self.more, **arguments})
        if result.is_error:
            raise RuntimeError(f"{self.name}: {tool} failed: {result.content}")

    def cpu(self) -> tuple[float, float]:
        """Return the processor seconds that the gateway and the counter have used up to now."""
        gateway = 0.0 if self.gateway is None else cpu_seconds([self.gateway])
        return gateway, cpu_seconds(self.upstream)


def possible(name: str, north: North, era: Era, folder: Path) -> str | None:
    """Return why a route cannot be measured, None when it can."""
    if name == "mcp-proxy" and north == "stdio":
        return "mcp-proxy serves over stdio only what is served over HTTP already"
    if name == "mcp-proxy" and era == "modern":
        return "mcp-proxy speaks no 2026-07-28"
    command = stdio_command(name, folder) if north == "stdio" else http_command(name, folder, 0)
    return None if command is not None else f"{name} is not installed"


@asynccontextmanager
async def open_route(name: str, north: North, era: Era, folder: Path) -> AsyncGenerator[Route]:
    """Start a gateway, or the counter itself, and connect to it."""
    connect = _over_stdio if north == "stdio" else _over_http
    async with connect(name, era, folder) as (client, pid):
        more: dict[str, Any] = {}
        if name in HEADS:
            answer = await client.call_tool("session_create", {})
            assert answer.structured_content is not None, answer
            more = {"session_id": answer.structured_content["session_id"]}
        route = Route(name, client, pid, [], more)
        for _ in range(3):
            await route.call("inc", {})
        if name == "direct":
            route.gateway, route.upstream = None, [pid]
        else:
            route.upstream = [child.pid for child in upstreams_of(pid, folder / "data")]
        yield route


@asynccontextmanager
async def _over_stdio(name: str, era: Era, folder: Path) -> AsyncGenerator[tuple[Client, int]]:
    command = stdio_command(name, folder)
    assert command is not None
    before = own_children()
    with log_file(folder) as errors:
        parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=str(ROOT))
        transport = stdio_client(parameters, errlog=errors)
        async with Client(transport, mode=MODE[era]) as client:
            # The SDK does not tell the pid of its child; no other process is started here meanwhile.
            (pid,) = own_children() - before
            yield client, pid


@asynccontextmanager
async def _over_http(name: str, era: Era, folder: Path) -> AsyncGenerator[tuple[Client, int]]:
    port = free_port()
    command = http_command(name, folder, port)
    assert command is not None
    with http_server(command, folder) as process:
        await accepting(port, process)
        async with Client(f"http://127.0.0.1:{port}/mcp", mode=MODE[era]) as client:
            yield client, process.pid
