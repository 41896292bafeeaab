"""`statehold sessions list`, `show` and `status` beside a process that runs: it answers, so that no store is opened."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from support.selection import matrix
from support.tool_commands import Commands, tool_commands

from statehold.server.exit_codes import NOT_FOUND, OK, USAGE

HEAVY = {"asyncio", "rich", "sqlalchemy", "pydantic", "mcp", "starlette", "playwright"}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Generator[Commands]:
    with tool_commands(tmp_path_factory.mktemp("quick")) as commands:
        for name in ("work", "a session with a long name that is hardly read"):
            commands.output("call", name, "inc")
        yield commands


def run(commands: Commands, *words: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run a command and return it with the modules that it imported."""
    program = (
        "import sys; from statehold.shell.entry import main; code = main(); "
        "sys.stderr.write('\\n' + ' '.join(sys.modules)); sys.exit(code)"
    )
    line = commands.line(*words)
    given = line[line.index("statehold") + 1 :]
    ran = subprocess.run(
        [sys.executable, "-c", program, *given], capture_output=True, text=True, check=False
    )
    return ran, set(ran.stderr.rpartition("\n")[2].split())


@pytest.mark.parametrize(
    "words",
    [("sessions", "list"), ("sessions", "show", "work"), ("status",), ("--version",)],
    ids=" ".join,
)
def test_a_command_that_reads_imports_no_database(
    commands: Commands, words: tuple[str, ...]
) -> None:
    ran, modules = run(commands, *words)
    assert ran.returncode == OK, ran.stderr
    assert HEAVY & modules == set()


@pytest.mark.thorough
def test_the_documents_are_those_of_the_store(commands: Commands, tmp_path: Path) -> None:
    ran, modules = run(commands, "sessions", "show", "work", "--json")
    assert "sqlalchemy" not in modules
    commands.shared.stop()
    again, modules = run(commands, "sessions", "show", "work", "--json")
    assert "sqlalchemy" in modules
    quick, slow = json.loads(ran.stdout), json.loads(again.stdout)
    assert quick.keys() == slow.keys()
    assert quick["session_id"] == slow["session_id"]
    commands.output("call", "work", "inc")


def test_mistakes_are_those_of_the_store(commands: Commands) -> None:
    ran = commands("sessions", "show", "absent")
    assert (ran.returncode, "there is no session absent. The data folder is" in ran.stderr) == (
        NOT_FOUND,
        True,
    )
    ran = commands("sessions", "list", "--since", "x")
    assert (ran.returncode, "--since: should be a time" in ran.stderr) == (USAGE, True)


@pytest.mark.parametrize("columns", matrix(80, 60, 160))
def test_a_table_fits_the_terminal_and_has_colours(commands: Commands, columns: int) -> None:
    text = shown_at(commands.line("sessions", "list"), columns)
    assert "\x1b[36midle" in text
    plain = text.replace("\x1b[36m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert all(len(line) <= columns for line in plain.splitlines())
    assert "work" in plain
    assert ("sh_" in plain) == (columns == 160)
    assert "\x1b" not in commands.output("sessions", "list")


def shown_at(line: list[str], columns: int) -> str:
    """Return what a command writes to a terminal of so many columns."""
    terminal, end = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    environ.pop("NO_COLOR", None)
    with subprocess.Popen(line, stdin=end, stdout=end, stderr=end, env=environ) as process:
        os.close(end)
        shown = bytearray()
        while True:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait(30) == OK
    os.close(terminal)
    return shown.decode()
