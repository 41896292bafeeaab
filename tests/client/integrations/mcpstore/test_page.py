"""The page for users of MCPStore, and its program."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import ForkServer

from statehold.client.integrations.mcpstore import MCPStore

ROOT = Path(__file__).resolve().parents[4]
ROW = re.compile(r"^\| [^|]+ \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
PAGE = (ROOT / "docs" / "use" / "coming-from.md").read_text(encoding="utf-8")
ROWS = ROW.findall(PAGE.partition("\n## MCPStore\n")[2].partition("\n## ")[0])


@pytest.fixture(scope="module")
def scope(store: MCPStore) -> Generator[dict[str, Any]]:
    """The names that the rows use. The last row closes the session."""
    session = store.for_store().create_session("of the page")
    yield {
        "store": store,
        "space": store.for_store(),
        "session": session,
        "session_id": "of the page",
        "agent_id": "reader",
        "name": "counter",
        "tool": "inc",
        "args": {},
        "client": store.client,
        "s": session.native,
        "new_name": "of the client",
    }
    store.for_store().close_all_sessions()


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[theirs for theirs, _ in ROWS])
def test_names_of_the_page_exist(scope: dict[str, Any], theirs: str, ours: str) -> None:
    """Evaluate each row of the finder, in both of its columns."""
    own = ours if "(tool" not in ours else "s.call('counter/inc', args)"
    for code in (theirs, own):
        eval(code, scope)


def test_the_page_names_every_method_of_a_session_that_mcpstore_had() -> None:
    named = {theirs.partition("(")[0].rpartition(".")[2] for theirs, _ in ROWS}
    assert {"session_auto", "session_manual", "create_session", "list_tools"} <= named
    assert {"bind_service", "use_tool", "restart_session", "extend_session"} <= named


@pytest.mark.thorough
def test_the_program_runs_and_writes_nothing(tmp_path: Path, fork_server: ForkServer) -> None:
    """Without a folder, no file is written."""
    example = "examples/migrating_from_mcpstore.py"
    assert f"uv run python {example}" in (ROOT / example).read_text(encoding="utf-8")
    command = fork_server.command(str(ROOT / example))
    env = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "0 services of the store are seen, one of its own counts 1" in done.stdout
    lines = [
        line.split(":", 1) for line in done.stdout.splitlines() if re.match("by|au|ma|in as", line)
    ]
    assert {name: text.split() for name, text in lines} == {
        "by hand": ["1", "2", "3", "restarted:", "1"],
        "automatic": ["1", "2", "3"],
        "manual again": ["1", "1", "1"],
        "in async code": ["1", "2", "3", "4", "5"],
    }
    assert list(tmp_path.rglob("*")) == []
