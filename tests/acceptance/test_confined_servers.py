"""Real servers in a sandbox: those of npm and PyPI, also from cold caches, and the browsers that some of them start."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from statehold.keeper.confinement import landlock_abi
from statehold.sessions.json_codec import JSON
from statehold.tools.upstream.config import SandboxSettings, UpstreamConfig
from statehold.tools.upstream.resource_updates import InternalContext
from statehold.tools.upstream.sandbox import ServiceSandboxes
from statehold.tools.upstream.service import UpstreamService

pytestmark = [
    pytest.mark.peer,
    pytest.mark.thorough,
    pytest.mark.skipif(landlock_abi() < 6, reason="needs Landlock of Linux 6.12"),
]

PAGE = {"url": "data:text/html,<p>inside"}
AS_ROOT = os.geteuid() == 0
"""Chromium wants to be told that root starts it."""


@dataclass(frozen=True)
class Server:
    """A server, one of its tools with arguments, and a part of the result. `{dir}` is its own folder."""

    args: Sequence[str]
    tool: str
    arguments: JSON
    expected: str
    command: str = "npx"


PINNED = {
    "everything": Server(
        ["@modelcontextprotocol/server-everything/dist/index.js"], "get-sum", {"a": 1, "b": 2}, "3"
    ),
    "memory": Server(
        ["@modelcontextprotocol/server-memory/dist/index.js"], "read_graph", {}, "entities"
    ),
    "vanillajs": Server(
        ["@modelcontextprotocol/server-basic-vanillajs/dist/index.js", "--stdio"],
        "get-time",
        {},
        "T",
    ),
    "playwright": Server(
        ["@playwright/mcp/cli.js", "--headless", "--output-dir", ".", "--executable-path"],
        "browser_navigate",
        PAGE,
        "Page URL: data:",
    ),
}
"""Those of tests/peers/package-lock.json."""

THOUGHT = {"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
TABLE = {"query": "create table notes (text)"}
DOWNLOADED = {
    "filesystem": Server(
        ["@modelcontextprotocol/server-filesystem@2026.8.31", "{dir}"],
        "write_file",
        {"path": "{dir}/notes", "content": "mine"},
        "Successfully wrote",
    ),
    "thinking": Server(
        ["@modelcontextprotocol/server-sequential-thinking@2026.8.31"],
        "sequentialthinking",
        THOUGHT,
        "thoughtHistoryLength",
    ),
    "monitor": Server(
        ["@modelcontextprotocol/server-system-monitor@2.0.3", "--stdio"],
        "get-system-info",
        {},
        "hostname",
    ),
    "pdf": Server(["@modelcontextprotocol/server-pdf@2.0.4", "--stdio"], "list_pdfs", {}, "PDF"),
    "sheet": Server(
        ["@modelcontextprotocol/server-sheet-music@2.0.3", "--stdio"],
        "play-sheet-music",
        {},
        "parsed",
    ),
    "runner": Server(
        ["mcp-server-code-runner@0.1.8"],
        "run-code",
        {"code": "print(6 * 7)", "languageId": "python"},
        "42",
    ),
    "commands": Server(
        ["mcp-server-commands@0.5.0"], "run_command", {"command": "echo $((6 * 7))"}, "42"
    ),
    "devtools": Server(
        ["chrome-devtools-mcp@1.11.0", "--headless", "--isolated", "--executablePath"],
        "new_page",
        PAGE,
        "inside",
    ),
    "time": Server(
        ["mcp-server-time@2026.10.19"],
        "get_current_time",
        {"timezone": "Europe/Berlin"},
        "datetime",
        "uvx",
    ),
    "git": Server(
        ["mcp-server-git@2026.10.19"], "git_status", {"repo_path": "{dir}"}, "branch", "uvx"
    ),
    "sqlite": Server(
        ["--with", "mcp<2", "mcp-server-sqlite@2025.4.25", "--db-path", "{dir}/notes.db"],
        "create_table",
        TABLE,
        "created",
        "uvx",
    ),
    "duckdb": Server(
        ["--with", "mcp<2", "mcp-server-duckdb@1.1.0", "--db-path", "{dir}/notes.duckdb"],
        "query",
        {"query": "select 6 * 7"},
        "42",
        "uvx",
    ),
    "excel": Server(
        ["excel-mcp-server@2.2.2", "stdio"],
        "create_workbook",
        {"path": "{dir}/book.xlsx"},
        "book.xlsx",
        "uvx",
    ),
    "word": Server(
        ["--from", "office-word-mcp-server@1.1.11", "word_mcp_server"],
        "create_document",
        {"filename": "letter.docx"},
        "created",
        "uvx",
    ),
    "markitdown": Server(
        ["markitdown-mcp@0.0.1a8"],
        "convert_to_markdown",
        {"uri": "data:text/plain,inside"},
        "inside",
        "uvx",
    ),
    "calculator": Server(
        ["mcp-server-calculator@0.2.1"], "calculate", {"expression": "6 * 7"}, "42", "uvx"
    ),
}
"""Those that npx and uvx fetch."""


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of caches, cold for the first server of npx and of uvx."""
    return tmp_path_factory.mktemp("caches")


def confined(name: str, command: Sequence[str], data: Path, caches: Path) -> UpstreamService:
    settings = SandboxSettings(mode="landlock")
    config = UpstreamConfig(
        command=command[0],
        args=[*command[1:]],
        sandbox=settings,
        # Git does not start without the settings of its user, if there are some.
        env={"GIT_CONFIG_GLOBAL": os.devnull},
        first_connect_seconds=200,
        connect_seconds=100,
    )
    sandboxes = ServiceSandboxes(name, settings, caches=caches, private=[data])
    return UpstreamService(name, config, data=data, sandboxes=sandboxes)


async def use(service: UpstreamService, server: Server) -> None:
    """List the tools of a server and call one."""
    async with service.open_temporary() as connection:
        context = InternalContext()
        listed = await connection.request("tools/list", {}, context)
        assert server.tool in [tool["name"] for tool in listed["tools"]]
        folder = os.readlink(f"/proc/{connection.pids[0]}/cwd")
        if server.tool == "git_status":
            await anyio.run_process(["git", "init", "-q", folder])
        arguments: Any = json.loads(json.dumps(server.arguments).replace("{dir}", folder))
        call: JSON = {"name": server.tool, "arguments": arguments}
        with anyio.fail_after(60):
            result = await connection.request("tools/call", call, context)
    assert not result.get("isError"), result
    assert server.expected in json.dumps(result["content"]), result


@pytest.mark.parametrize("name", PINNED)
async def test_a_server_of_npm_works(
    name: str, npm_peers: Path, chromium: str, tmp_path: Path
) -> None:
    server = PINNED[name]
    program, *args = server.args
    if "--executable-path" in args:
        args += [chromium, "--no-sandbox"] if AS_ROOT else [chromium]
    command = ["node", str(npm_peers / program), *args]
    await use(confined(name, command, tmp_path, tmp_path / "caches"), server)


@pytest.mark.parametrize("name", DOWNLOADED)
@pytest.mark.timeout(300)
async def test_a_server_works_that_a_launcher_fetches(
    name: str, chromium: str, tmp_path: Path, caches: Path
) -> None:
    server = DOWNLOADED[name]
    args = ["-y", *server.args] if server.command == "npx" else [*server.args]
    if "--executablePath" in args:
        args += [chromium, "--chromeArg=--no-sandbox"] if AS_ROOT else [chromium]
    service = confined(server.command, [server.command, *args], tmp_path, caches)
    await use(service, server)
    assert os.listdir(caches / server.command)
