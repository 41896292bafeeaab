"""The log of a running server at its levels, and the stderr of its sessions' programs."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client
from support.gateway_process import (
    JSON,
    Running,
    opened_session,
    service,
    serving,
    structured,
    toml,
)

from statehold.server.operate.requests import OperatorRequest, ask
from statehold.sessions.node import NODES

FORGED = "12:00:00 ERROR statehold: forged"
WRITES = (
    "import sys, runpy; "
    f"sys.stderr.write('first\\x1b[31m of stderr\\r{FORGED}\\n'); sys.stderr.flush(); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


def writing(**options: str) -> JSON:
    """A quick server that writes to stderr before it serves."""
    options_of_quick = service("quick")
    options_of_quick["args"] = ["-S", "-c", WRITES, options_of_quick["args"][-1]]
    return {**options_of_quick, **options}


def config_of(folder: Path, **services: JSON) -> Path:
    path = folder / "statehold.toml"
    path.write_text(toml({"services": services}))
    return path


async def _live(url: str) -> str:
    async with Client(url + "/mcp", cache=None) as client:
        session = await opened_session(client, name="work")
        await client.call_tool("inc", {"session_id": session})
        for tool in ("session_pause", "session_resume"):
            structured(await client.call_tool(tool, {"session_id": session}))
        await client.call_tool("crash", {"session_id": session})
        await client.call_tool("inc", {"session_id": session})
        structured(await client.call_tool("session_close", {"session_id": session}))
        return session


@pytest.mark.thorough
def test_the_info_level_logs_sessions_and_services_and_no_calls(tmp_path: Path) -> None:
    config = config_of(tmp_path, quick=service("quick"), broken=service("bad", "exit-at-start"))
    with serving(config, tmp_path / "data", "--log-level", "info") as running:
        session = anyio.run(_live, running.url)
        assert running.stop() == 0
    lines = [line for line in running.lines if f'session {session} "work"' in line]
    words = ("created", "paused", "resumed", "recovered", "closed")
    logged = [word for line in lines for word in words if f'"work" {word}' in line]
    assert logged == list(words)
    assert running.log.count("exited with code 3") == 1
    assert f"session {session} lost quick generation 1: " in running.log
    assert "service quick is available: 9 tools" in running.log
    assert "service broken is not available: " in running.log
    assert "call of" not in running.log
    assert "stderr:" not in running.log


@pytest.mark.thorough
def test_the_debug_level_logs_calls_and_stderr_without_forged_lines(tmp_path: Path) -> None:
    config = config_of(tmp_path, quick=writing())
    with serving(config, tmp_path / "data", "--log-level", "debug") as running:
        session = anyio.run(_live, running.url)
        assert running.stop() == 0
    assert f"call of 'inc' in session '{session}': ok after " in running.log
    assert f"quick stderr: first\\x1b[31m of stderr\\r{FORGED}" in running.log
    lines = [line for line in running.lines if "stderr:" in line]
    assert not any(mark in line for line in lines for mark in "\x1b\r")


def test_stderr_of_a_session_is_kept_for_the_operator(tmp_path: Path) -> None:
    async def use(running: Running) -> None:
        async with Client(running.url + "/mcp", cache=None) as client:
            session = await opened_session(client)
            nodes = tmp_path / "data" / NODES
            (node,) = {path.stem for path in nodes.iterdir() if path.suffix == ".lock"}

            async def stderr() -> JSON:
                arguments = {"session_id": session}
                request = OperatorRequest(tool="operator_stderr", arguments=arguments)
                return (await ask(nodes, node, request))["stderr"]

            assert await stderr() == {}
            await client.call_tool("inc", {"session_id": session})
            texts = await stderr()
            assert texts == {"quick": f"first\\x1b[31m of stderr\n{FORGED}"}
            await client.call_tool("crash", {"session_id": session})
            # The text is from the broken connection, or from the one that has replaced it.
            assert FORGED in (await stderr())["quick"]

    with serving(config_of(tmp_path, quick=writing()), tmp_path / "data") as running:
        anyio.run(use, running)


QUOTES_ITS_KEY = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "no method"}}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        capabilities = {"tools": {}, "prompts": {}}
        server = {"name": "quotes", "version": "1"}
        answer = {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}}
    elif message["method"] == "tools/list":
        answer = {"result": {"tools": [{"name": "nothing", "inputSchema": {"type": "object"}}]}}
    elif message["method"] == "prompts/list":
        answer = {"error": {"code": -32603, "message": "not for the key " + json.dumps(os.environ["API_KEY"])}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_of_a_server_that_quotes_its_key_is_logged_without_it(
    tmp_path: Path, form: str
) -> None:
    key = 'very"secret-4711'
    server: JSON = {
        "command": sys.executable,
        "args": ["-S", "-c", QUOTES_ITS_KEY],
        "env": {"API_KEY": key, "MODEL": "gpt-4o-2024-08-06"},
    }
    config = config_of(tmp_path, quotes=server)
    with serving(config, tmp_path / "data", "--log-format", form) as running:
        anyio.run(_list_prompts, running.url)
        assert running.stop() == 0
    assert "not for the key" in running.log
    assert "secret-4711" not in running.log
    assert "[redacted]" in running.log


async def _list_prompts(url: str) -> None:
    async with Client(url + "/mcp", cache=None) as client:
        await client.list_prompts()
