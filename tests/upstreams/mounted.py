"""A server of the SDK below /mcp of a Starlette application, which answers 307 for /mcp: `python mounted.py`.

It prints its port.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.routing import Mount

mounted = MCPServer("mounted")
counts: list[int] = []


@mounted.tool()
def inc() -> int:
    """Count."""
    counts.append(1)
    return len(counts)


app = mounted.streamable_http_app(streamable_http_path="/")


@asynccontextmanager
async def life(_: Starlette) -> AsyncGenerator[None]:
    async with app.router.lifespan_context(app):
        yield


if __name__ == "__main__":
    outer = Starlette(routes=[Mount("/mcp", app=app)], lifespan=life)
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)  # noqa: T201
    uvicorn.Server(uvicorn.Config(outer, log_level="error", ws="none")).run(sockets=[listening])
