"""The browser servers that are compared: ours, @playwright/mcp, and Playwright alone or behind the SDK's own server."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from . import bare
from .bare import shell
from .gateways import http_server, log_file, statehold
from .plan import MODE, ROOT
from .processes import accepting, free_port

PEER = ROOT / "tests" / "peers" / "node_modules" / "@playwright" / "mcp" / "cli.js"

CONFIG = """\
[services.browser]
executable = "{shell}"
private = true
"""


class Browser(Protocol):
    name: str
    ref: str
    """The ref of the button that is clicked."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return the text of its result."""
        ...


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


class Remote:
    """A browser behind an MCP client."""

    def __init__(self, name: str, client: Client, more: dict[str, Any]) -> None:
        self.name = name
        self.ref = ""
        self._client = client
        self._more = more

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        result = await self._client.call_tool(tool, {**self._more, **arguments})
        text = "\n".join(block.text for block in result.content if block.type == "text")
        if result.is_error:
            raise RuntimeError(f"{self.name}: {tool} failed: {text}")
        return text


@asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncGenerator[Browser]:
    """Start one and connect to it in the era that the peer speaks; the end of the block stops all of it."""
    if name == "playwright":
        async with bare.opened() as browser:
            yield browser
        return
    who, how, *more = name.split()
    async with _connected(who, how, "0" if more else None, folder) as client:
        given: dict[str, Any] = {}
        if who == "statehold":
            created = await client.call_tool("session_create", {})
            assert created.structured_content is not None, created
            given = {"session_id": created.structured_content["session_id"]}
        yield Remote(name, client, given)


@asynccontextmanager
async def _connected(
    who: str, how: str, settle: str | None, folder: Path
) -> AsyncGenerator[Client]:
    port = free_port() if how == "http" else None
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    if who == "statehold":
        command = statehold_command(folder, port)
    else:
        command = bare.COMMAND if who == "sdk" else peer_command(settle, port)
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


def statehold_command(folder: Path, port: int | None, browser: str | None = None) -> list[str]:
    """Return the command that serves our browser, over stdio without a port; the headless shell by default."""
    config = folder / "statehold.toml"
    config.write_text(CONFIG.format(shell=browser or shell()), encoding="utf-8")
    serve = () if port is None else ("serve", "--port", str(port))
    return statehold(folder / "data", config, *serve)


def peer_command(settle: str | None, port: int | None, browser: str | None = None) -> list[str]:
    """Return the command that serves the peer's browser, by default with its own pause after an action."""
    node = shutil.which("node") or "node"
    command = [node, str(PEER), "--headless", "--isolated", "--no-sandbox"]
    command += ["--executable-path", browser or shell() or ""]
    if settle is not None:
        command += ["--timeout-settle", settle]
    return command if port is None else [*command, "--port", str(port)]
