"""The start of a stdio process: it lists its tools before it opens its sessions."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from support.gateway_process import JSON, MODULE, Way, opened_session, serving, statehold, toml
from support.piped import HELLO, Pipes, piped, tool_call
from support.selection import matrix

from statehold.server.exit_codes import FAILURE, OK, USAGE
from statehold.sessions.store.file.store_folder import DataFolder

LIST: JSON = {"id": 1, "method": "tools/list"}
UNNEEDED = {
    *("sqlalchemy", "aiosqlite", "sqlite3", "alembic"),
    *("jsonschema", "pydantic_settings", "playwright", "difflib"),
    *("statehold.sessions.store.sql", "statehold.server.http.app"),
    "statehold.server.operate.handler",
    *("mcp.client.client", "mcp.client.session", "mcp.server.mcpserver"),
    *("mcp.server.streamable_http_manager", "mcp.server.auth.routes", "mcp_types._v2026_07_28"),
    *("sse_starlette", "uvicorn", "click", "httpx2"),
    *("statehold.tools.browser.opening", "statehold.tools.browser.tools"),
}
"""Modules that a list of the tools does not need."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "statehold.toml"
    path.write_text(toml({"services": {"browser": {"type": "browser"}}}))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def unusable(data: Path) -> Path:
    """A data folder in which no process can hold a lock."""
    data.mkdir()
    (data / "nodes").touch()
    return data


async def listed_tools(pipes: Pipes) -> list[str]:
    await pipes.send(LIST)
    return [tool["name"] for tool in (await pipes.answer(1))["result"]["tools"]]


def test_a_list_of_the_tools_imports_only_its_own_modules(config: Path, data: Path) -> None:
    # One pipe for both streams, so that the answer stands after the imports that came before it.
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *MODULE, "--config", str(config), "--data", str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        send(process, *HELLO, LIST)
        before = imported_until_answer(process, 1)
        send(process, tool_call(2, "session_create"))
        between = imported_until_answer(process, 2)
        process.stdin.close()
        assert process.wait(20) == OK
    assert before & UNNEEDED == set()
    assert "sqlalchemy" in between


def send(process: subprocess.Popen[str], *messages: JSON) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def imported_until_answer(process: subprocess.Popen[str], number: int) -> set[str]:
    """Return the modules that a process imports until it answers a request."""
    assert process.stdout is not None
    imported: set[str] = set()
    for line in process.stdout:
        if line.startswith("import time:"):
            imported.add(line.rpartition("|")[2].strip())
        elif line.startswith("{") and json.loads(line).get("id") == number:
            return imported
    raise AssertionError(f"not answered: {number}")


async def test_the_tools_are_listed_while_another_process_opens_the_database(
    config: Path, data: Path
) -> None:
    async with piped(config, data) as pipes:
        async with DataFolder(data).hold_lock(5):
            assert "session_create" in await listed_tools(pipes)
            await pipes.send(tool_call(2, "session_create"))
            await pipes.send({"id": 3, "method": "ping"})
            assert (await pipes.line())["id"] == 3
        assert not (await pipes.answer(2))["result"].get("isError")
        await pipes.stdin.aclose()
        with anyio.fail_after(20):
            assert await pipes.process.wait() == OK


@pytest.mark.parametrize("number", matrix(signal.SIGTERM, signal.SIGINT))
async def test_a_signal_ends_a_process_that_still_opens_its_sessions(
    config: Path, data: Path, number: signal.Signals
) -> None:
    async with DataFolder(data).hold_lock(5), piped(config, data) as pipes:
        await listed_tools(pipes)
        pipes.process.send_signal(number)
        assert await pipes.rest() == []
        with anyio.fail_after(20):
            assert await pipes.process.wait() == OK


@pytest.mark.parametrize("lists", matrix(True, False))
async def test_a_store_that_cannot_be_opened_is_the_error_of_each_request(
    config: Path, unusable: Path, lists: bool
) -> None:
    """A process that ended would be a closed pipe for the client, without a reason."""
    async with piped(config, unusable) as pipes:
        if lists:
            assert "session_create" in await listed_tools(pipes)
        await pipes.send(tool_call(2, "session_create"), {"id": 3, "method": "prompts/list"})
        for number in (2, 3):
            error = (await pipes.answer(number))["error"]
            assert error["data"]["code"] == "service_unavailable"
            assert "nodes in the data folder cannot be used" in error["message"]
        await pipes.stdin.aclose()
        assert await pipes.rest() == []
        assert pipes.process.stderr is not None
        with anyio.fail_after(20):
            errors = b"".join([piece async for piece in pipes.process.stderr]).decode()
            assert await pipes.process.wait() == FAILURE
    assert "nodes in the data folder cannot be used" in errors
    assert "Traceback" not in errors


def test_a_wrong_setting_is_the_error_of_each_request(data: Path) -> None:
    hello = json.dumps({"jsonrpc": "2.0", **HELLO[0]})
    done = subprocess.run(
        [*statehold(), "--data", str(data), "--toolsets", "nosuch"],
        input=hello,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == USAGE
    error = json.loads(done.stdout)["error"]
    assert error["data"]["code"] == "invalid_argument"
    assert "--toolsets" in error["message"]
    assert "--toolsets" in done.stderr


def run_once(config: Path, data: Path) -> subprocess.CompletedProcess[str]:
    """Run a process whose client leaves at once."""
    return subprocess.run(
        [*statehold(), "--config", str(config), "--data", str(data)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_store_that_cannot_be_opened_is_reported_to_a_client_that_leaves_at_once(
    config: Path, unusable: Path
) -> None:
    done = run_once(config, unusable)
    assert done.returncode == FAILURE
    assert "nodes in the data folder cannot be used" in done.stderr


@pytest.mark.thorough
async def test_a_store_that_fails_after_it_was_opened_ends_the_process_with_one_line(
    config: Path, data: Path
) -> None:
    with serving(config, data) as server:
        async with Way("http", "modern", config, data, url=server.url).connect() as client:
            await opened_session(client)
        server.process.kill()
    # The next process cannot pause the session that this one left open.
    with closing(sqlite3.connect(data / "statehold.db")) as database:
        database.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON session BEGIN INSERT INTO missing VALUES (1); END"
        )
    done = await anyio.to_thread.run_sync(run_once, config, data)
    assert done.returncode == FAILURE
    assert "Traceback" not in done.stderr
    assert "statehold.db" in done.stderr.splitlines()[-1]
