"""The parts of Statehold that one idle tool call passes: a bound on their number, so that a reader can follow a call."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support import traced_server
from support.gateway_process import opened_session, service, toml
from support.hostile_issuer import AUDIENCE, hostile_issuer
from support.waiting import until

FILES = 55
"""Six of them measure and trace the call: request, outcome, instruments, spans, their context, and the last hour."""
FUNCTIONS = 259
"""Functions with a name, from the first byte of a call to its entry in the journal."""
FRAMES = 14
AUTH_FILES = 6
"""The further files of a call with an access token that was verified before: three for the token, one for its scope, and
the one that knows when the store was read."""
AUTH_FUNCTIONS = 20
AUTH_FRAMES = 1


@dataclass
class TracedServer:
    """A running server that records the functions it executes."""

    process: subprocess.Popen[str]
    url: str
    data: Path

    def command(self) -> dict[str, Any]:
        """Start a recording, or end it and return it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def journalled_calls(self) -> int:
        """Return the number of calls that are journalled with their result."""
        database = sqlite3.connect(f"file:{self.data / 'statehold.db'}?mode=ro", uri=True)
        try:
            query = "SELECT count(*) FROM journal WHERE status = 'ok'"
            return database.execute(query).fetchone()[0]
        finally:
            database.close()


@contextmanager
def running(folder: Path, **settings: Any) -> Generator[TracedServer]:
    config, data = folder / "statehold.toml", folder / "data"
    config.write_text(toml({"services": {"quick": service("quick")}, **settings}))
    command = [sys.executable, traced_server.__file__, "serve", "--config", str(config)]
    process = subprocess.Popen(
        [*command, "--data", str(data), "--port", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        try:
            for line in process.stderr:
                if "listens on" in line:
                    yield TracedServer(process, line.split()[-1], data)
                    break
            else:
                raise AssertionError("the server did not start")
        finally:
            process.terminate()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_idle_call_passes_few_files_functions_and_frames(
    mode: str, tmp_path: Path
) -> None:
    with running(tmp_path) as server:
        recording = await recorded_call(server, mode=mode)
    check(recording, FILES, FUNCTIONS, FRAMES)
    assert not any(file.startswith("access/v") for file in recording["functions"])


@pytest.mark.thorough
async def test_a_call_with_a_verified_token_passes_few_more(tmp_path: Path) -> None:
    with hostile_issuer() as issuer:
        settings = {
            "auth": {"issuers": [{"issuer": issuer.url}], "audience": [AUDIENCE]},
            "server": {"public_url": "https://mcp.example.org"},
        }
        headers = {"authorization": f"Bearer {issuer.token(scope='statehold:use')}"}
        with running(tmp_path, **settings) as server:
            recording = await recorded_call(server, headers)
    check(recording, FILES + AUTH_FILES, FUNCTIONS + AUTH_FUNCTIONS, FRAMES + AUTH_FRAMES)


async def recorded_call(
    server: TracedServer, headers: dict[str, str] | None = None, *, mode: str = "auto"
) -> Any:
    """Return the shortest recording of four calls after two others: a look at tokens or the store may come between."""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(server.url, http_client=http), mode=mode, cache=None
        ) as client,
    ):
        session = await opened_session(client)
        recordings: list[Any] = []
        for calls in range(1, 7):
            if calls > 2:
                server.command()
            await client.call_tool("get", {"session_id": session})
            await until(lambda calls=calls: server.journalled_calls() >= calls)
            if calls > 2:
                recordings.append(server.command())
        return min(recordings, key=lambda recording: len(recording["functions"]))


def check(recording: Any, most_files: int, most_functions: int, most_frames: int) -> None:
    functions, stack = recording["functions"], recording["stack"]
    named = [name for names in functions.values() for name in names if not name.endswith(">")]
    if len(functions) > most_files or len(named) > most_functions or len(stack) > most_frames:
        lines = [f"{file}: {', '.join(names)}" for file, names in sorted(functions.items())]
        pytest.fail(
            f"{len(functions)} files (at most {most_files}), "
            f"{len(named)} functions (at most {most_functions}):\n"
            + "\n".join(lines)
            + f"\n{len(stack)} frames (at most {most_frames}):\n"
            + "\n".join(stack)
        )
