"""The `statehold` command in this process, on a data folder of the test's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from support.fork_server import ForkedProgram, ForkServer
from support.gateway_fixtures import *
from support.holding import Output, Run

from statehold.server.shared import connection
from statehold.server.shared.folder import SharedFolder
from statehold.shell.main import main


@pytest.fixture(autouse=True)
def started_servers(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Have the servers that commands start here come from the fork server, and end them in order after the test."""
    servers: list[ForkedProgram] = []

    def start(folder: SharedFolder, command: Sequence[str], *, within: float) -> str | None:
        assert ForkServer.current is not None
        # Without the interpreter, and its -P.
        server = ForkServer.current.start(*command[2:], piped=True)
        servers.append(server)
        assert server.stdout is not None
        return None if server.stdout.readline() else "it ended"

    monkeypatch.setattr(connection, "start_server", start)
    yield
    for server in servers:
        assert server.stdin is not None
        assert server.stdout is not None
        with server.stdin, server.stdout:
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def statehold(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run the command in this process, on a data folder of the test's own."""
    for variable in [name for name in os.environ if name.startswith("STATEHOLD_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("STATEHOLD_DATA", str(data))

    def run(*words: str) -> Output:
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Output(code, captured.out, captured.err)

    return run
