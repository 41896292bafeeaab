"""An agent in tests: a client that works in one session, and functions to inspect the processes of a server."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import psutil
from mcp import Client

from statehold.sessions.live.snapshots import decode_snapshot

from .gateway_process import Running, Way, opened_session

NOTE = "Note from Statehold"


class Agent:
    """A client that works in one session. `heard` are the texts of all its results."""

    def __init__(self, client: Client, session: str) -> None:
        self.client = client
        self.session = session
        self.heard: list[str] = []

    async def call(
        self, tool: str, *, within: float = 40.0, **arguments: Any
    ) -> types.CallToolResult:
        given = {"session_id": self.session, **arguments}
        with anyio.fail_after(within):
            result = await self.client.call_tool(tool, given)
        self.heard.append(text_of(result))
        return result

    async def said(self, tool: str, **arguments: Any) -> str:
        """Call a tool that has to succeed and return all text of its result."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, text_of(result)
        return text_of(result)

    async def evaluate(self, expression: str) -> str:
        """Evaluate an expression on the page of the session and return all text of the result."""
        return await self.said("browser_evaluate", function=f"() => {expression}")

    async def failed(self, tool: str, **arguments: Any) -> str:
        """Call a tool that has to fail and return all text of its result."""
        result = await self.call(tool, **arguments)
        assert result.is_error, text_of(result)
        return text_of(result)


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(b.text for b in result.content if isinstance(b, types.TextContent))


@asynccontextmanager
async def agent(way: Way, session: str | None = None, **options: Any) -> AsyncGenerator[Agent]:
    """An agent with a connection of its own, in a new session where none is given."""
    async with way.connect() as client:
        yield Agent(client, session or await opened_session(client, **options))


def is_driver(process: psutil.Process) -> bool:
    return "run-driver" in process.cmdline()


def is_browser_host(process: psutil.Process) -> bool:
    line = process.cmdline()
    return any(word.endswith("host.cjs") for word in line) and line[0].endswith("node")


def is_browser(process: psutil.Process) -> bool:
    line = process.cmdline()
    # Debian's command is a script that starts the browser, and stays.
    return "--remote-debugging-pipe" in line and not line[0].endswith("/sh")


def tree_of(running: Running) -> list[psutil.Process]:
    """Return the process of a server and all its descendants, also those that the keeper holds."""
    records = (running.data / "children").glob("*/*.json")
    pids = {running.process.pid, *(int(record.stem) for record in records)}
    tree: dict[int, psutil.Process] = {}
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            tree |= {each.pid: each for each in (process, *process.children(recursive=True))}
    return list(tree.values())


def find_process(running: Running, condition: Callable[[psutil.Process], bool]) -> psutil.Process:
    # The oldest one is meant: a child that a browser forks looks like the browser for a moment.
    below = [each for each in tree_of(running) if each.pid != running.process.pid]
    return min(filter(condition, below), key=lambda process: process.create_time())


def memory_of(running: Running) -> int:
    """Return the bytes of all processes of a server; shared pages count once, and mapped files do not count.

    The share of mapped files depends on which other browsers run on the machine.
    """
    total = 0
    for process in tree_of(running):
        with suppress(OSError):
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text("ascii")
            kib = re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB$", text, re.M)
            total += sum(map(int, kib)) * 1024
    return total


def saved_text(data: Path, session: str) -> str:
    """Return the stored snapshot of a session's browser from the database of a server."""
    with sqlite3.connect(f"file:{next(data.glob('*.db'))}?mode=ro", uri=True) as connection:
        rows: list[Any] = connection.execute(
            "SELECT data FROM snapshot WHERE session_id = ? ORDER BY seq DESC LIMIT 1", (session,)
        ).fetchall()
    connection.close()
    return str(decode_snapshot(rows[0][0]).data) if rows else ""


__all__ = [
    "NOTE",
    "Agent",
    "agent",
    "find_process",
    "is_browser",
    "is_driver",
    "memory_of",
    "saved_text",
    "text_of",
    "tree_of",
]
