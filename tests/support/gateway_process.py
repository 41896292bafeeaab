"""Connections to Statehold over each transport and protocol era, so that one test can run over all of them.

A `Way` is a transport and a protocol era. `connect()` opens one more connection; over stdio that is one more process, over
the same data folder.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server

from statehold.sessions.json_codec import JSON

from .fork_server import ForkedProgram, ForkServer

Transport = Literal["memory", "stdio", "http", "sse"]
Era = Literal["modern", "legacy"]

MODULE = ("-m", "statehold")
STATEHOLD = [sys.executable, *MODULE]
UPSTREAMS = Path(__file__).resolve().parents[1] / "upstreams"
IN_PROCESS: list[tuple[Transport, Era]] = [("memory", "modern"), ("memory", "legacy")]
"""Both eras without a transport: the default, for tests to which framing makes no difference."""


def statehold() -> list[str]:
    """Return the command that starts Statehold, forked from the fork server if one runs; then the command line is the
    fork server's.
    """
    return STATEHOLD if ForkServer.current is None else ForkServer.current.command(*MODULE)


def run_command(config: Path, data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Statehold with these settings, without a terminal. Blocks, at most a minute."""
    return subprocess.run(
        [*statehold(), *words, "--config", str(config), "--data", str(data)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def toml(document: Mapping[str, Any], table: str = "") -> str:
    """Write settings as TOML: tables of strings, numbers, booleans and lists."""
    plain = {k: v for k, v in document.items() if not isinstance(v, Mapping)}
    lines = [f"[{table}]"] if table and plain else []
    lines += [f"{json.dumps(k)} = {_value(v)}" for k, v in plain.items()]
    text = "\n".join(lines) + "\n" if lines else ""
    for key, value in document.items():
        if isinstance(value, Mapping):
            inner: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
            text += toml(inner, f"{table}.{json.dumps(key)}" if table else json.dumps(key))
    return text


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        table: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return "{" + ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in table.items()) + "}"
    if isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return "[" + ", ".join(map(_value, items)) + "]"
    return json.dumps(value)


def service(program: str, *arguments: str, **options: Any) -> JSON:
    """Describe a service that runs one of tests/upstreams.

    The counter may be forked from the fork server, whose socket it does not reach in a sandbox: callers with tokens need
    `sandbox="off"`.
    """
    command_line = [str(UPSTREAMS / f"{program}.py"), *arguments]
    if program == "counter":
        # With the SDK; the others need the standard library alone.
        command = [sys.executable] if ForkServer.current is None else ForkServer.current.command()
    else:
        command = [sys.executable, "-S", "-E"]
    return {"command": command[0], "args": [*command[1:], *command_line], **options}


@dataclass
class Running:
    """A `statehold serve` of a test's own."""

    process: subprocess.Popen[bytes] | ForkedProgram
    data: Path
    lines: list[str] = field(default_factory=list[str])
    url: str = ""

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def stop(self, *, within: float = 20.0) -> int:
        """Send SIGTERM and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)


@contextmanager
def serving(
    config: Path,
    data: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    as_installed: bool = False,
) -> Generator[Running]:
    """Run `statehold serve` on a free port until the block ends, forked from the fork server if one runs."""
    arguments = ["serve", "--config", str(config), "--data", str(data), "--port", "0", *options]
    environment = {**os.environ, **(env or {})}
    if ForkServer.current is not None and not as_installed:
        process = ForkServer.current.start(*MODULE, *arguments, env=environment)
    else:
        process = subprocess.Popen(
            [*STATEHOLD, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
    running, listening = Running(process, data), threading.Event()
    reader = threading.Thread(target=_read, args=(running, listening), daemon=True)
    reader.start()
    try:
        assert listening.wait(30), f"not listening:\n{running.log}"
        assert running.url, f"ended with {process.wait(5)}:\n{running.log}"
        yield running
    finally:
        try:
            running.stop()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
            raise
        finally:
            reader.join(5)
            if process.stderr is not None:
                process.stderr.close()


def kill(server: Running) -> None:
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(10)


def pid_at(port: int) -> int:
    """Return the pid of the process that answers a new connection to a port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/livez")
        return json.loads(connection.getresponse().read())["pid"]
    finally:
        connection.close()


def _read(running: Running, listening: threading.Event) -> None:
    assert running.process.stderr is not None
    for line in running.process.stderr:
        text = line.decode(errors="replace")
        running.lines.append(text)
        if "Statehold listens on " in text:
            running.url = text.rpartition("Statehold listens on ")[2].strip().removesuffix("/mcp")
            listening.set()
    listening.set()


@dataclass
class Way:
    """One transport and era: `connect()` opens a new connection over it."""

    transport: Transport
    era: Era
    config: Path
    data: Path
    mcp_server: Server[Any] | None = None
    url: str = ""
    options: Sequence[str] = ()
    """More options of the command line, for stdio."""
    program: Sequence[str] = field(default_factory=statehold)
    """The program to start, for stdio."""

    @property
    def modern(self) -> bool:
        return self.era == "modern"

    @property
    def mode(self) -> str:
        return "auto" if self.modern else "legacy"

    @asynccontextmanager
    async def connect(
        self, path: str | None = None, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncGenerator[Client]:
        """Open a connection; `path` is another URL than /mcp or /sse."""
        async with (
            AsyncClosing(headers) as http,
            Client(
                self._server(path, headers, http), mode=self.mode, cache=None, **options
            ) as client,
        ):
            yield client

    def _server(self, path: str | None, headers: Mapping[str, str] | None, http: Any) -> Any:
        if self.transport == "memory":
            assert self.mcp_server is not None
            return self.mcp_server
        if self.transport == "http":
            return streamable_http_client(self.url + (path or "/mcp"), http_client=http)
        if self.transport == "sse":
            return sse_client(self.url + (path or "/sse"), headers=dict(headers or {}))
        return stdio_client(self.stdio())

    def stdio(self, *options: str) -> StdioServerParameters:
        flags = ["--config", str(self.config), "--data", str(self.data), *self.options, *options]
        command, *arguments = self.program
        return StdioServerParameters(command=command, args=[*arguments, *flags])

    async def call(self, tool: str, **arguments: Any) -> types.CallToolResult:
        """Call a tool over a connection of its own."""
        async with self.connect() as client:
            return await client.call_tool(tool, arguments)


class AsyncClosing:
    """An HTTP client with some headers, None without any."""

    def __init__(self, headers: Mapping[str, str] | None) -> None:
        self._client = httpx2.AsyncClient(headers=dict(headers), timeout=60) if headers else None

    async def __aenter__(self) -> httpx2.AsyncClient | None:
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.aclose()


def text_of(result: types.CallToolResult) -> str:
    """Return the first block, which is the tool's own."""
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


def structured(result: types.CallToolResult) -> JSON:
    assert not result.is_error, text_of(result)
    content: Any = result.structured_content
    assert isinstance(content, dict)
    return cast(JSON, content)


def without_nulls(value: Any) -> Any:
    """Return JSON without the keys that hold null."""
    if isinstance(value, dict):
        content = cast(JSON, value)
        return {key: without_nulls(item) for key, item in content.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in cast("list[Any]", value)]
    return value


ASKS_SESSION: Any = {"statehold/session": True}
"""The `_meta` of a call that asks for the summary of its session."""
ASKS_SERVICE: Any = {"statehold/service": True}
"""The `_meta` of a request for a list that asks for the service of each tool."""


def meta_of(result: types.CallToolResult) -> JSON:
    return dict(result.meta or {})


def code_of(result: types.CallToolResult) -> str:
    """Return the code of an error in a tool result, after a check that both forms of the error carry it."""
    assert result.is_error
    error = meta_of(result)["statehold/error"]
    head, advice = text_of(result).removeprefix("### Error\n").split("\n", 1)
    assert head.startswith(f"{error['code']}: ")
    assert advice == error["recovery"]
    assert isinstance(error["retryable"], bool)
    return error["code"]


async def opened_session(client: Client, **arguments: Any) -> str:
    return structured(await client.call_tool("session_create", arguments))["session_id"]


async def count(client: Client, session_id: str, tool: str = "inc") -> int:
    result = await client.call_tool(tool, {"session_id": session_id})
    return structured(result)["count"]


_VERSION = "2026-07-28"


def modern_call(tool: str, arguments: JSON) -> tuple[JSON, dict[str, str]]:
    """Return the body and the headers of a 2026-07-28 tool call."""
    meta: JSON = {
        "io.modelcontextprotocol/protocolVersion": _VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params: JSON = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = {
        "mcp-protocol-version": _VERSION,
        "mcp-method": "tools/call",
        "mcp-name": tool,
        "accept": "application/json, text/event-stream",
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers
