"""A server of the SDK that asks for a key in the header `X-Api-Key`: one of the lines of a file. It prints its port.

It repeats the key, as a careless server does, and has a tool with the number of the line, the first of which is 1.
"""

from __future__ import annotations

import json
import socket
import sys
from base64 import b64encode
from contextvars import ContextVar
from pathlib import Path

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import Tool
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

sent_key: ContextVar[tuple[int, str]] = ContextVar("sent_key")


class Keyed(MCPServer):
    async def list_tools(self) -> list[Tool]:
        name = f"of_{sent_key.get()[0]}"
        return [*await super().list_tools(), Tool(name=name, input_schema={"type": "object"})]


server = Keyed("keyed")


@server.tool()
async def echo(context: Context) -> str:
    _, key = sent_key.get()
    await context.report_progress(1, message=f"called with {key}")
    return f"{key} {b64encode(f'user:{key}'.encode()).decode()} {json.dumps(json.dumps(key))}"


@server.tool()
async def digits() -> int:
    """Return the number of characters of the key."""
    return len(sent_key.get()[1])


def guarded(app: ASGIApp, valid: Path) -> ASGIApp:
    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sent = Request(scope).headers.get("x-api-key", "").removeprefix("Key ")
            keys = valid.read_text().splitlines()  # noqa: ASYNC240 - it is short
            if sent not in keys:
                await PlainTextResponse(f"{sent} is no key", 401)(scope, receive, send)
                return
            sent_key.set((keys.index(sent) + 1, sent))
        await app(scope, receive, send)

    return check


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    app = guarded(server.streamable_http_app(), Path(sys.argv[1]))
    sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
    sys.stdout.flush()
    anyio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve, [listener])


if __name__ == "__main__":
    main()
