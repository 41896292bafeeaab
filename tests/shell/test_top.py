"""`statehold top` in a real terminal, over a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.gateway_process import STATEHOLD
from support.selection import matrix
from support.terminal import ScreenTerminal, program_in_terminal
from support.tool_commands import Commands, tool_commands

from statehold.server.exit_codes import FAILURE, INTERRUPTED, OK

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
"""The sequences that show the other screen of a terminal, and the first one again."""
SHOW_CURSOR = b"\x1b[?25h"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Generator[Commands]:
    with tool_commands(tmp_path_factory.mktemp("top")) as commands:
        commands.output("call", "work", "inc")
        yield commands


@contextmanager
def top(
    commands: Commands, *, columns: int = 80, rows: int = 24, term: str = "xterm"
) -> Generator[ScreenTerminal]:
    line = commands.line("top", configured=False)
    with program_in_terminal(line, columns=columns, rows=rows, term=term) as terminal:
        terminal.wait_for_text("SESSION", "STATUS")
        yield terminal


def assert_is_restored(terminal: ScreenTerminal, settings: list[object]) -> None:
    assert terminal.received.count(ENTER) == terminal.received.count(LEAVE) == 1
    assert terminal.received.rfind(SHOW_CURSOR) > terminal.received.find(ENTER)
    assert terminal.received.rfind(LEAVE) > terminal.received.rfind(b"SESSION")
    assert terminal.settings == settings


def test_the_screen_follows_the_sessions_and_keys_change_them(commands: Commands) -> None:
    with top(commands) as terminal:
        # The newest session comes first.
        commands.output("call", "play", "inc")
        terminal.wait_for_text("play", "idle", "ok", "inc")
        terminal.press("\x1b[H")
        terminal.wait_for_text("> play")
        terminal.wait_for_text("asking", "open", " MB")
        slow = subprocess.Popen(
            commands.line("call", "play", "slow", "seconds=60"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            terminal.wait_for_text("play", "active", "runs", "slow")
        finally:
            slow.send_signal(signal.SIGINT)
            slow.wait(20)
        terminal.wait_for_text("play", "idle", "cancelled", "slow")
        terminal.press("p")
        terminal.wait_for_text("play is paused")
        terminal.wait_for_text("> play", "paused")
        terminal.press("r")
        terminal.wait_for_text("> play", "idle")
        terminal.press("c")
        terminal.wait_for_text("close play for good", "y/n")
        terminal.press("n")
        terminal.wait_for_text("> play", "idle")
        terminal.press("cy")
        terminal.wait_for_text("play is closed")
        terminal.wait_for_text("> work")
        terminal.press("q")
        assert terminal.wait_for_end() == OK
    assert "play" not in commands.output("sessions", "list")


@pytest.mark.thorough
def test_a_session_that_asks_is_shown_and_found_by_the_filter(commands: Commands) -> None:
    asked = commands("call", "unsure", "ask", "--no-input")
    assert "answer with" in asked.stdout
    with top(commands) as terminal:
        terminal.wait_for_text("unsure", "asks", "ask")
        terminal.press("/wor\r")
        terminal.wait_for_text("1 of 2 sessions")
        terminal.wait_for(lambda lines: not any("unsure" in line for line in lines), "one session")
        terminal.press("\x1b")
        # The arrow keys move the selection.
        terminal.wait_for_text("> work")
        terminal.press("\x1b[A")
        terminal.wait_for_text("> unsure")
        terminal.press("\x1b[B")
        terminal.wait_for_text("> work")
    commands.output("sessions", "close", "unsure", "--force")


@pytest.mark.parametrize(
    ("end", "code"),
    matrix(("quit", OK), ("\x03", INTERRUPTED), (signal.SIGTERM, 143), (signal.SIGHUP, 129)),
    ids=["q", "Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_the_terminal_is_restored_at_every_end(
    commands: Commands, end: str | signal.Signals, code: int
) -> None:
    line = commands.line("top", configured=False)
    with program_in_terminal(line, term="xterm") as terminal:
        settings = terminal.first_settings
        terminal.wait_for_text("work")
        assert terminal.settings != settings
        if isinstance(end, signal.Signals):
            os.kill(terminal.pid, end)
        else:
            terminal.press("q" if end == "quit" else end)
        assert terminal.wait_for_end() == code
        assert_is_restored(terminal, settings)


@pytest.mark.thorough
def test_the_screen_fits_every_size_of_the_terminal(commands: Commands) -> None:
    with top(commands, columns=160, rows=50) as terminal:
        terminal.wait_for_text("sh_", "work", "inc")
        for columns, rows in ((80, 24), (40, 10), (160, 50)):
            terminal.resize(columns, rows)
            terminal.screen.reset()
            os.kill(terminal.pid, signal.SIGWINCH)
            terminal.wait_for(lambda lines: lines[-1].startswith("p pause"), "the keys")
            terminal.wait_for_text("work")


def test_without_a_terminal_one_table_is_printed(commands: Commands) -> None:
    table = commands.output("top").splitlines()
    assert table[0].split() == ["SESSION", "STATUS", "CALLS/S", "MEMORY", "LAST", "CALL"]
    [row] = [line for line in table[1:] if line.startswith("work")]
    assert re.fullmatch(r"work +idle for .*MB +ok .* ago: inc", row)


def test_without_a_server_nothing_is_shown(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*STATEHOLD, "--data", str(tmp_path), "top"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (
        FAILURE,
        f"statehold: no server runs for {tmp_path}\n",
    )


@pytest.mark.thorough
def test_only_the_screen_imports_its_library(commands: Commands) -> None:
    program = (
        "import sys; from statehold.shell.entry import main; code = main(); "
        "sys.stderr.write('\\n' + ' '.join(sys.modules)); sys.exit(code)"
    )
    for words in (("top",), ("sessions", "list"), ("status",), ("--help",), ("tools",)):
        line = commands.line(*words, configured=False)
        given = line[line.index("statehold") + 1 :]
        ran = subprocess.run(
            [sys.executable, "-c", program, *given], capture_output=True, text=True, check=True
        )
        modules = set(ran.stderr.rpartition("\n")[2].split())
        assert "rich" not in modules, words
