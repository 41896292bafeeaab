"""The servers that the agent works through, and what each call costs the model in tokens and seconds."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ..browser.bare import shell
from ..browser.browsers import peer_command, possible
from ..gateways import log_file, statehold
from ..plan import MODE

SECRETS: Final = "secrets.env"
SESSION: Final = "agent"
USED: Final = (
    *("browser_navigate", "browser_click", "browser_type", "browser_fill_form", "browser_find"),
    *("browser_select_option", "browser_press_key", "browser_file_upload", "browser_wait_for"),
    *("browser_snapshot", "browser_handle_dialog", "browser_tabs"),
)
"""The tools whose arguments a model reads before its first command."""
FILE_TOKENS: Final = 25_000
"""Larger files are not read: tools that read files for a model refuse them, and it searches the page instead."""
THINK_SECONDS: Final = 0.3
"""The pause before each call, in which pages go on; a model takes longer. It is not counted."""

CONFIG: Final = """\
[services.browser]
executable = "{shell}"
uploads = ["{folder}"]
secrets = "{folder}/{secrets}"
{settings}
"""
_LINKED: Final = re.compile(r"\[Snapshot\]\((\S+\.yml)\)")

Reading = Literal["always", "once", "never"]


@dataclass(frozen=True, slots=True)
class Route:
    """A server, and the agent's way with it.

    `reads`: whether the agent reads the snapshot file that a result links before it searches the page: after each action,
    when it comes to a page, or never.
    """

    name: str
    server: Literal["statehold", "shell", "peer"]
    reads: Reading
    settings: str = ""
    """Lines for the browser in Statehold's configuration."""


OURS: Final = Route("statehold", "statehold", "always")
PEER: Final = Route("peer", "peer", "always")
SHELL: Final = Route("statehold shell", "shell", "always")
"""Commands instead of MCP: the model reads the skill instead of the list of the tools."""
OTHERS: Final = (
    SHELL,
    Route("peer reading once", "peer", "once"),
    Route("peer searching", "peer", "never"),
    Route("statehold searching", "statehold", "never", 'snapshot = "none"'),
)
"""Routes of thriftier agents, of which the table has the totals only.

An agent that only searches has to know in advance what things are called on pages that it has never seen.
"""


@dataclass(slots=True)
class Cost:
    """The cost of calls: their number, their wall time, and a quarter token for each character sent or read."""

    calls: int = 0
    files: int = 0
    """Snapshot files that were read."""
    seconds: float = 0.0
    characters: int = 0

    @property
    def tokens(self) -> int:
        return self.characters // 4


@dataclass(frozen=True, slots=True)
class Result:
    text: str
    is_error: bool


class Server:
    """A browser server over stdio, as a model uses it."""

    def __init__(self, route: Route, client: Client, folder: Path, tools_tokens: int) -> None:
        self.route = route
        self.folder = folder
        self.tools_tokens = tools_tokens
        self.cost = Cost()
        self.texts: list[str] = []
        """Everything the model has read."""
        self._client = client

    async def call(self, tool: str, arguments: dict[str, Any]) -> Result:
        """Call a tool, and count what is sent and what the model reads of the result."""
        await anyio.sleep(THINK_SECONDS)
        began = time.perf_counter()
        answer = await self._client.call_tool(tool, arguments)
        self.cost.seconds += time.perf_counter() - began
        self.cost.calls += 1
        text = "\n".join(block.text for block in answer.content if block.type == "text")
        self.cost.characters += len(tool) + len(json.dumps(arguments)) + len(text)
        self.texts.append(text)
        return Result(text, answer.is_error)

    async def peek(self, function: str) -> str:
        """Return what a function says in the page. It is no call of the model's and is not counted."""
        answer = await self._client.call_tool("browser_evaluate", {"function": function})
        return "\n".join(block.text for block in answer.content if block.type == "text")

    def linked_file(self, text: str) -> Path | None:
        """Return the snapshot file that a result links, None without one and for one that is too large to read."""
        found = _LINKED.search(text)
        if found is None:
            return None
        file = self.folder / found[1]
        return file if file.exists() and file.stat().st_size <= FILE_TOKENS * 4 else None

    def read(self, file: Path) -> str:
        """Read a file as a model does with a tool for that, and count it."""
        text = file.read_text(encoding="utf-8")
        self.cost.files += 1
        self.cost.characters += len(text)
        self.texts.append(text)
        return text

    def secret(self, name: str) -> str:
        """Return the text that is typed for a secret; the server puts in its value."""
        return name if self.route.server == "peer" else f"%{name}%"


class ShellServer(Server):
    """The same tools, called by commands. The model writes a line and reads what it prints."""

    def __init__(self, route: Route, folder: Path, command: list[str], lists: str) -> None:
        self.route = route
        self.folder = folder
        self.tools_tokens = len(lists) // 4
        self.cost = Cost()
        self.texts: list[str] = []
        self._command = command

    async def call(self, tool: str, arguments: dict[str, Any]) -> Result:
        await anyio.sleep(THINK_SECONDS)
        words = [_word(name, value) for name, value in arguments.items()]
        began = time.perf_counter()
        ran = await self._run(tool, words)
        self.cost.seconds += time.perf_counter() - began
        self.cost.calls += 1
        text = ran.stdout.decode() + ran.stderr.decode()
        self.cost.characters += len(shlex.join(["statehold", "call", SESSION, tool, *words]))
        self.cost.characters += len(text)
        self.texts.append(text)
        return Result(text, ran.returncode != 0)

    async def peek(self, function: str) -> str:
        ran = await self._run("browser_evaluate", [_word("function", function)])
        return ran.stdout.decode()

    async def _run(self, tool: str, words: list[str]) -> subprocess.CompletedProcess[bytes]:
        line = [*self._command, "call", SESSION, tool, *words]
        return await anyio.run_process(line, check=False)


def _word(name: str, value: object) -> str:
    """Return an argument as a model writes it for a command."""
    if isinstance(value, str):
        return f"{name}={value}"
    if isinstance(value, list) and all(
        isinstance(item, str) for item in cast("list[object]", value)
    ):
        return f"{name}={','.join(cast('list[str]', value))}"
    return f"{name}:={json.dumps(value)}"


def missing(route: Route) -> str | None:
    """Return why a route cannot be measured, None when it can."""
    server = "peer" if route.server == "peer" else "statehold"
    return possible(f"{server} stdio", small=True)


@asynccontextmanager
async def served_by(route: Route, folder: Path, secrets: dict[str, str]) -> AsyncGenerator[Server]:
    """Start a server with its defaults, in a folder of its own; the end of the block stops it."""
    await anyio.Path(folder).mkdir(parents=True)
    lines = "".join(f"{name}={value}\n" for name, value in secrets.items())
    (folder / SECRETS).write_text(lines, encoding="utf-8")
    if route.server != "peer":
        config = folder / "statehold.toml"
        config.write_text(
            CONFIG.format(shell=shell(), folder=folder, secrets=SECRETS, settings=route.settings),
            "utf-8",
        )
        if route.server == "shell":
            async with _shell(route, folder, config) as server:
                yield server
            return
        command = statehold(folder / "data", config, "--session", SESSION)
    else:
        command = [*peer_command(None), "--secrets", SECRETS]
    with log_file(folder) as errors:
        parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=str(folder))
        async with Client(stdio_client(parameters, errlog=errors), mode=MODE["legacy"]) as client:
            listed = await client.list_tools()
            tools = [
                tool.model_dump(mode="json", by_alias=True, exclude_none=True)
                for tool in listed.tools
            ]
            yield Server(route, client, folder, len(json.dumps(tools)) // 4)


@asynccontextmanager
async def _shell(route: Route, folder: Path, config: Path) -> AsyncGenerator[ShellServer]:
    """Start the background server, and read what a model reads before its first command."""
    command = statehold(folder / "data", config)

    async def output(*words: str) -> str:
        ran = await anyio.run_process([*command, *words])
        return ran.stdout.decode()

    lists = [await output("skill"), await output("tools"), await output("tools", *USED)]
    try:
        yield ShellServer(route, folder, command, "".join(lists))
    finally:
        await output("stop")
