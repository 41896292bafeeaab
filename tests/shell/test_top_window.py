"""The key of `statehold top` that opens the window of a session, with a real screen."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import service, toml
from support.screen import Screen
from support.shared_clients import SharedClients
from support.terminal import ScreenTerminal, program_in_terminal
from support.tool_commands import Commands

from statehold.server.exit_codes import OK

pytestmark = pytest.mark.thorough

ENTER = b"\x1b[?1049h"
"""The sequence that shows the other screen of a terminal."""
OPEN = "is open in a window"


@pytest.fixture
def commands(tmp_path: Path, headless_shell: str) -> Generator[Commands]:
    """Commands of a server with a browser, whose sessions are `shop` with a page and `work` without one."""
    config = tmp_path / "statehold.toml"
    browser = {"executable": headless_shell, "private": True}
    config.write_text(toml({"services": {"browser": browser, "quick": service("quick")}}))
    shared = SharedClients(config, tmp_path / "data")
    yield Commands(shared, tmp_path / "log")
    shared.stop()


def wait_for_screen(terminal: ScreenTerminal, count: int) -> None:
    """Wait until the program shows its screen again."""
    terminal.wait_for(lambda _: terminal.received.count(ENTER) == count, f"screen {count}")


def test_a_person_opens_the_window_of_the_selected_session_and_comes_back(
    commands: Commands, lab_site: Any, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.output("call", "shop", "browser_navigate", f"url={lab_site.url}/counter")
    monkeypatch.setenv("DISPLAY", screen.display)
    with program_in_terminal(commands.line("top"), columns=100) as terminal:
        terminal.wait_for_text("> shop")
        terminal.press("o")
        terminal.wait_for_text(OPEN)
        refused = commands("call", "shop", "browser_snapshot")
        assert "A person has control of the session" in refused.stderr
        screen.focus()
        screen.keys("ctrl+shift+w")
        wait_for_screen(terminal, 2)
        terminal.wait_for_text("> shop", "idle")
        # Ctrl-C in the terminal ends the window, and not this program.
        terminal.press("o")
        terminal.wait_for(lambda _: terminal.received.count(OPEN.encode()) == 2, OPEN)
        terminal.press("\x03")
        wait_for_screen(terminal, 3)
        terminal.press("q")
        assert terminal.wait_for_end() == OK
        assert terminal.settings == terminal.first_settings
    assert "Counter" in commands.output("call", "shop", "browser_snapshot")


def test_a_window_that_cannot_be_opened_is_explained_before_the_screen_returns(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    commands.output("call", "work", "inc")
    with program_in_terminal(commands.line("top"), columns=200) as terminal:
        terminal.wait_for_text("> work")
        terminal.press("o")
        terminal.wait_for_text("there is no display for a window")
        terminal.wait_for_text("press Enter to go back to the sessions")
        terminal.press("\r")
        wait_for_screen(terminal, 2)
        terminal.press("q")
        assert terminal.wait_for_end() == OK
