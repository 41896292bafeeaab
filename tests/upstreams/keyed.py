"""A server of the SDK that asks for a key in the header `X-Api-Key`: that in a file. It prints its port.

It repeats the key, as a careless server does.
"""

from __future__ import annotations

import json
import socket
import sys
from base64 import b64encode
from pathlib import Path

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("keyed")


def _key(context: Context) -> str:
    request = context.request_context.request
    assert isinstance(request, Request)
    return request.headers["x-api-key"].removeprefix("Key ")


@server.tool()
async def echo(context: Context) -> str:
    key = _key(context)
    await context.report_progress(1, message=f"called with {key}")
    return f"{key} {b64encode(f'user:{key}'.encode()).decode()} {json.dumps(json.dumps(key))}"


@server.tool()
async def digits(context: Context) -> int:
    """Return the number of characters of the key."""
    return len(_key(context))


def guarded(app: ASGIApp, valid: Path) -> ASGIApp:
    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sent = Request(scope).headers.get("x-api-key", "")
            if sent != f"Key {valid.read_text()}":  # noqa: ASYNC240 - it is short
                await PlainTextResponse(f"{sent} is no key", 401)(scope, receive, send)
                return
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
