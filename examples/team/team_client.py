"""Log in at Statehold with your browser, and call its tools, one a line.

    uv run python examples/team/team_client.py [ADDRESS]

It is the client of the MCP SDK: it finds the identity provider by itself, registers there, and gets a token by code and
PKCE.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import threading
import webbrowser
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

ADDRESS = "http://127.0.0.1:8931"
DONE = "You are logged in. You can close this page."
HELP = """Type a tool and its arguments, such as
  session_create name=trip
  browser_navigate url=https://example.com
The session of the last line is used again. Ctrl-D ends."""


class MemoryStorage:
    """The registration and the tokens of one client, as long as its program runs."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client_info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client_info = client_info


class Callback:
    """The loopback address to which the browser brings the code. `url` is known inside the `async with` block."""

    def __init__(self) -> None:
        self._results = asyncio.Queue[AuthorizationCodeResult]()
        self.url = ""

    async def __aenter__(self) -> Callback:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/callback"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def result(self) -> AuthorizationCodeResult:
        """Wait for the next login."""
        return await self._results.get()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        query = {k: v[0] for k, v in parse_qs(urlsplit(head.split(" ")[1]).query).items()}
        text = DONE if "code" in query else query.get("error_description", "There is nothing here.")
        body = f"<!DOCTYPE html><title>Login</title><p>{text}</p>".encode()
        kind = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close"
        writer.write(f"{kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        if "code" in query:
            result = AuthorizationCodeResult(
                code=query["code"], state=query.get("state"), iss=query.get("iss")
            )
            self._results.put_nowait(result)


@asynccontextmanager
async def connect(
    address: str, title: str, visit: Callable[[str], Awaitable[None]]
) -> AsyncGenerator[Client]:
    """Connect a client to Statehold. `visit` opens the login page in a browser, whenever a login is needed."""
    url = f"{address}/mcp"
    async with Callback() as callback:
        metadata = OAuthClientMetadata(
            client_name=title,
            redirect_uris=[AnyUrl(callback.url)],
            token_endpoint_auth_method="none",
            grant_types=["authorization_code", "refresh_token"],
        )
        auth = OAuthClientProvider(url, metadata, MemoryStorage(), visit, callback.result)
        async with (
            httpx2.AsyncClient(auth=auth, timeout=120) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client


def parse(line: str) -> tuple[str, dict[str, Any]]:
    """Read `TOOL NAME=VALUE ...`. A value is JSON if it can be, else a text."""
    tool, *words = shlex.split(line)
    arguments: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return tool, arguments


async def open_browser(url: str) -> None:
    print(f"Log in at {url}", flush=True)
    webbrowser.open(url)


def read_lines(lines: asyncio.Queue[str], loop: asyncio.AbstractEventLoop) -> None:
    """Put the lines of stdin into a queue, and an empty text at its end."""
    with open(0, closefd=False, encoding="utf-8") as stdin:
        for line in stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
    loop.call_soon_threadsafe(lines.put_nowait, "")


async def main(address: str) -> None:
    session: dict[str, Any] = {}
    lines = asyncio.Queue[str]()
    # A daemon, so that Ctrl-C does not wait for the next line.
    loop = asyncio.get_running_loop()
    threading.Thread(target=read_lines, args=(lines, loop), daemon=True).start()
    async with connect(address, "the client of the example", open_browser) as client:
        print(HELP, flush=True)
        while line := await lines.get():
            try:
                tool, arguments = parse(line)
            except ValueError:
                print(HELP, flush=True)
                continue
            if tool != "session_create":
                arguments = session | arguments
            try:
                result = await client.call_tool(tool, arguments)
            except MCPError as problem:
                print(problem.error.message, flush=True)
                continue
            for block in result.content:
                print(getattr(block, "text", f"({block.type})"), flush=True)
            content = result.structured_content or arguments
            if not result.is_error and "session_id" in content:
                session = {"session_id": content["session_id"]}


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:] or [ADDRESS]))
    except KeyboardInterrupt:
        sys.exit(130)
    except ExceptionGroup as problems:
        if problems.subgroup(httpx2.ConnectError) is None:
            raise
        sys.exit("Cannot connect: start the identity provider and Statehold first.")
