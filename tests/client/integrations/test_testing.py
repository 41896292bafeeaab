"""The contents of the pytest plugin's fixtures, where a full run of pytest is not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statehold.client.integrations.testing import (
    TOOLSETS,
    BlockingStdioSessions,
    ServerProcess,
    StdioSessions,
    options_of,
)


def test_paths_are_those_of_the_run_and_tables_get_its_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = ["--config", str(root / "a.toml"), "--services", str(root / "b.json")]
    assert options_of("a.toml", "b.json", tmp_path, root) == files
    assert options_of(None, {}, tmp_path, root) == ["--toolsets", TOOLSETS]
    table = {"one": {"command": "one"}, "two": {"command": "two", "cwd": "/two"}}
    for services in (table, {"mcpServers": table}):
        path = options_of(None, services, tmp_path, root)[-1]
        servers = json.loads(Path(path).read_text())["mcpServers"]
        assert [entry["cwd"] for entry in servers.values()] == [str(root), "/two"]


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"did not start:\n.*nowhere\.toml"):
        ServerProcess(tmp_path, "--config", "nowhere.toml")


async def test_a_command_is_a_list_and_a_failure_shows_no_frame_of_ours() -> None:
    wrong: Any = "python server.py"
    with pytest.raises(TypeError, match="the command is a list") as caught:
        BlockingStdioSessions()(wrong)
    assert caught.traceback[1].ishidden(caught)
    with pytest.raises(TypeError, match="the command is a list") as caught:
        await StdioSessions()(wrong)
    assert caught.traceback[1].ishidden(caught)
