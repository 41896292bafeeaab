"""The browser servers that are compared: ours, @playwright/mcp, and Playwright alone or behind the SDK's own server."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextResourceContents

from ..gateways import http_server, log_file, statehold
from ..plan import MODE, ROOT
from ..processes import accepting, free_port
from ..report import Table
from ..samples import undisturbed
from . import bare
from .bare import shell

PEER = ROOT / "tests" / "peers" / "node_modules" / "@playwright" / "mcp" / "cli.js"

CONFIG = """\
[services.browser]
executable = "{shell}"
private = true
"""

SETTINGS = {
    "fast": 'settle = "fast"',
    "balanced": 'settle = "balanced"',
    "patient": 'settle = "patient"',
    "no snapshot": 'snapshot = "none"',
}
"""The lines of `[services.browser]` that a variant of ours adds, by its name."""
FLAGS = {
    "settle 0": ("--timeout-settle", "0"),
    "no snapshot": ("--snapshot-mode", "none"),
}
"""The flags that a variant of the peer adds, by its name."""

_FILE = re.compile(r"(\.playwright-mcp/[\w.-]+)(?:#L(\d+)-L(\d+))?")
"""A file that a result of the peer names, and the lines of it that are new."""


class Browser(Protocol):
    name: str
    ref: str
    """The ref of the button that is clicked."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return the text of its result."""
        ...


class Answer(NamedTuple):
    """The result of a call as a model gets it, and the files that it names, which a model reads with a call of its own."""

    text: str
    files: str
    is_error: bool
    seconds: float
    """The time of the call alone."""

    @property
    def whole(self) -> str:
        return f"{self.text}\n{self.files}"


def whole() -> str | None:
    """Return the path of a whole Chromium, which the peer starts by default."""
    names = ("google-chrome", "chromium", "chromium-browser")
    return next(filter(None, map(shutil.which, names)), None)


def possible(name: str, *, small: bool = False) -> str | None:
    """Return why a server cannot be measured, None when it can; `small`: all of them in the headless shell."""
    if shell() is None:
        return "chromium-headless-shell is not installed"
    if not small and name in ("peer http", "statehold http whole") and whole() is None:
        return "neither Chrome nor Chromium is installed"
    if name.startswith("peer") and (not PEER.exists() or shutil.which("node") is None):
        return "@playwright/mcp is not installed: python tests/peers/install.py npm"
    return None


def present(names: Sequence[str], table: Table) -> list[str]:
    """Return the servers that can be measured in the headless shell; a note of the table names the others."""
    reasons = {name: possible(name, small=True) for name in names}
    table.notes += [f"left out: {reason}" for reason in dict.fromkeys(reasons.values()) if reason]
    return [name for name, reason in reasons.items() if reason is None]


class Remote:
    """A browser behind an MCP client."""

    def __init__(self, name: str, client: Client, more: dict[str, Any], folder: Path) -> None:
        self.name = name
        self.ref = ""
        self._client = client
        self._more = more
        self._folder = folder

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        text, is_error, _ = await self._call(tool, arguments)
        if is_error:
            raise RuntimeError(f"{self.name}: {tool} failed: {text}")
        return text

    async def answer(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Call a tool and read the files that its result names."""
        with undisturbed():
            began = time.perf_counter()
            text, is_error, links = await self._call(tool, arguments)
            seconds = time.perf_counter() - began
        files = list(self._files(text))
        for link in links:
            found = await self._client.read_resource(link)
            files += [
                part.text for part in found.contents if isinstance(part, TextResourceContents)
            ]
        return Answer(text, "\n".join(files), is_error, seconds)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool, list[str]]:
        result = await self._client.call_tool(tool, {**self._more, **arguments})
        text = "\n".join(block.text for block in result.content if block.type == "text")
        links = [str(block.uri) for block in result.content if block.type == "resource_link"]
        return text, bool(result.is_error), links

    def _files(self, text: str) -> Generator[str]:
        """Yield the texts of the files that a text names."""
        for name, first, last in _FILE.findall(text):
            lines = (self._folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
            yield "".join(lines[int(first) - 1 : int(last)] if first else lines)


@asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncGenerator[Browser]:
    """Start one and connect to it in the era that the peer speaks; the end of the block stops all of it."""
    async with bare.opened() if name == "playwright" else remote(name, folder) as browser:
        yield browser


@asynccontextmanager
async def remote(name: str, folder: Path) -> AsyncGenerator[Remote]:
    """Start a server by its name (`statehold stdio fast`: server, transport, variant) and connect to it."""
    who, how, *variant = name.split(maxsplit=2)
    async with _connected(who, how, "".join(variant), folder) as client:
        given: dict[str, Any] = {}
        if who == "statehold":
            created = await client.call_tool("session_create", {})
            assert created.structured_content is not None, created
            given = {"session_id": created.structured_content["session_id"]}
        yield Remote(name, client, given, folder)


@asynccontextmanager
async def _connected(who: str, how: str, variant: str, folder: Path) -> AsyncGenerator[Client]:
    port = free_port() if how == "http" else None
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    if who == "statehold":
        command = statehold_command(folder, port, variant=variant)
    else:
        command = bare.COMMAND if who == "sdk" else peer_command(port, variant=variant)
    if port is None:
        with log_file(folder) as errors:
            parameters = StdioServerParameters(
                command=command[0],
                args=command[1:],
                cwd=str(ROOT if who == "sdk" else folder),
            )
            async with Client(
                stdio_client(parameters, errlog=errors), mode=MODE["legacy"]
            ) as client:
                yield client
        return
    with http_server(command, folder) as process:
        await accepting(port, process)
        # The peer refuses every other name of this machine.
        async with Client(f"http://localhost:{port}/mcp", mode=MODE["legacy"]) as client:
            yield client


def statehold_command(
    folder: Path, port: int | None, browser: str | None = None, *, variant: str = ""
) -> list[str]:
    """Return the command that serves our browser, over stdio without a port; the headless shell by default."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "statehold.toml"
    text = CONFIG.format(shell=browser or shell()) + SETTINGS.get(variant, "")
    config.write_text(text, encoding="utf-8")
    serve = () if port is None else ("serve", "--port", str(port))
    return statehold(folder / "data", config, *serve)


def peer_command(port: int | None, browser: str | None = None, *, variant: str = "") -> list[str]:
    """Return the command that serves the peer's browser, over stdio without a port; at its defaults without a variant."""
    node = shutil.which("node") or "node"
    command = [node, str(PEER), "--headless", "--isolated", "--no-sandbox"]
    command += ["--executable-path", browser or shell() or "", *FLAGS.get(variant, ())]
    return command if port is None else [*command, "--port", str(port)]
