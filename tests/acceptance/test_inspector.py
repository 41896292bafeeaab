"""The command line of the MCP Inspector as it is released: a new process and a new connection for every call.

It declares no elicitation and asks for no progress.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from support.gateway_process import JSON, Running

pytestmark = [pytest.mark.peer, pytest.mark.thorough]

TOOL_ERROR = 5
"""The exit code for a result with isError."""


class Ended(NamedTuple):
    """The exit code and the output of one run of the program."""

    code: int
    output: str
    errors: str

    @property
    def result(self) -> JSON:
        return json.loads(self.output)["result"]


class Inspector(NamedTuple):
    command: list[str]
    environment: dict[str, str]

    async def run(self, *options: str) -> Ended:
        with anyio.fail_after(50):
            done = await anyio.run_process(
                [*self.command, *options],
                stdin=subprocess.DEVNULL,
                env=self.environment,
                check=False,
            )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def call(self, tool: str, **arguments: object) -> Ended:
        return await self.run(*options_of(tool, **arguments))


def options_of(tool: str, **arguments: object) -> list[str]:
    text = json.dumps(arguments)
    return ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", text]


@pytest.fixture(scope="module")
def settings(counter_command: list[str]) -> JSON:
    """The counting server alone."""
    return {"services": {"counter": {"command": counter_command[0], "args": counter_command[1:]}}}


@pytest.fixture(scope="module", params=["modern"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def inspector(
    era: str,
    server: Running,
    node22: str,
    npm_peers: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Inspector:
    program = npm_peers / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    target = ["--server-url", f"{server.url}/mcp", "--transport", "http", "--protocol-era", era]
    # It keeps files in the home folder.
    environment = {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}
    command = [node22, str(program), "--cli", *target, "--format", "json", "--quiet"]
    return Inspector(command, environment)


@pytest.fixture(scope="module")
async def session(inspector: Inspector) -> str:
    created = await inspector.call("session_create")
    return created.result["structuredContent"]["session_id"]


async def test_tools_are_listed_with_portable_schemas(inspector: Inspector) -> None:
    listed = await inspector.run("--method", "tools/list", "--strict")
    assert listed.code == 0, listed.errors
    schemas = {tool["name"]: tool["inputSchema"] for tool in listed.result["tools"]}
    assert {"session_create", "session_close", "inc", "slow"} <= set(schemas)
    assert {"session_id", "statehold_session_id"} & schemas["inc"]["properties"].keys()


@pytest.mark.parametrize("era", ["legacy", "modern"], indirect=True, scope="module")
async def test_calls_that_reconnect_count_on(inspector: Inspector, session: str) -> None:
    results = [await inspector.call("inc", session_id=session) for _ in range(2)]
    assert [ended.result["structuredContent"]["count"] for ended in results] == [1, 2]


async def test_a_bad_id_is_an_error_of_the_tool(inspector: Inspector) -> None:
    refused = await inspector.call("inc", session_id="sh_unknown")
    assert refused.code == TOOL_ERROR
    assert refused.result["content"][0]["text"].startswith("session_not_found: ")


async def test_a_question_is_refused(inspector: Inspector, session: str) -> None:
    """The program has no way to answer and declares no elicitation."""
    question = await inspector.call("ask", session_id=session)
    assert question.code == 1
    assert "The caller cannot answer elicitation/create." in question.errors


async def test_an_image_arrives(inspector: Inspector, session: str, tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    written = ["--output", str(file), "--output-format", "raw"]
    await inspector.run(*options_of("image", session_id=session), *written)
    assert file.read_bytes().startswith(b"\x89PNG")


async def test_an_interrupted_call_ends_in_the_session(
    inspector: Inspector,
    session: str,
    in_flight: Callable[[str, int], Awaitable[None]],
) -> None:
    """The program has no command that cancels. Interrupted, it closes the connection, which cancels from 2026-07-28 on."""
    options = options_of("slow", session_id=session, seconds=60, steps=600)
    async with await anyio.open_process(
        [*inspector.command, *options], stdin=subprocess.DEVNULL, env=inspector.environment
    ) as process:
        await in_flight(session, 1)
        process.send_signal(signal.SIGINT)
        await in_flight(session, 0)
