"""The command line of the MCP Inspector as it is released: a new process and a new connection for every call.

It declares no elicitation and asks for no progress.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from support.gateway_process import JSON, Running

pytestmark = [pytest.mark.peer, pytest.mark.thorough]


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
