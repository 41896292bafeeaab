"""The bar of long commands, in a real terminal."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from support.browser_mirror import browser_mirror
from support.gateway_process import toml
from support.selection import matrix
from support.terminal import ScreenTerminal, program_in_terminal
from support.tool_commands import Commands, tool_commands

from statehold.server.exit_codes import OK, USAGE

ENTRIES = 3000
"""The entries of the journal of a session that is exported in several pages, and imported in several writes."""
BAR = "\u2501".encode()
SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Generator[Commands]:
    """Commands of a data folder that has the session `long`."""
    folder = tmp_path_factory.mktemp("progress")
    with tool_commands(folder) as commands:
        commands.output("call", "short", "inc")
        document = json.loads(commands.output("sessions", "export", "short", "-"))
        [*_, call] = [entry for entry in document["journal"] if entry["kind"] == "call"]
        document["journal"] = [{**call, "seq": number + 1} for number in range(ENTRIES)]
        document["session"]["name"] = "long"
        (folder / "long.json").write_text(json.dumps(document))
        commands.output("sessions", "import", str(folder / "long.json"))
        yield commands


def shown(line: list[str]) -> ScreenTerminal:
    """Run a command in a terminal. Return the terminal, with the screen as it is at the end."""
    with program_in_terminal(line, columns=100) as terminal:
        assert terminal.wait_for_end() == OK, terminal.lines
        assert terminal.settings == terminal.first_settings
        return terminal


def words_of(name: str, folder: Path, copy: str = "copy") -> list[str]:
    """Return the words of a long command; `copy` names what it makes."""
    return {
        "backup": ["backup", str(folder / f"{copy}.db")],
        "export": ["sessions", "export", "long", str(folder / f"{copy}.json")],
        "import": [
            "sessions",
            "import",
            str(folder / "long.json"),
            "--name",
            f"{folder.name}-{copy}",
        ],
    }[name]


@pytest.fixture
def folder(commands: Commands, tmp_path: Path) -> Path:
    """A folder of the test's own, with the document of a session."""
    (tmp_path / "long.json").symlink_to(commands.shared.config.with_name("long.json"))
    return tmp_path


@pytest.mark.thorough
@pytest.mark.parametrize("name", matrix("export", "import", "backup"))
def test_a_long_command_shows_a_bar_that_is_gone_at_the_end(
    commands: Commands, folder: Path, name: str
) -> None:
    terminal = shown(commands.line(*words_of(name, folder)))
    assert BAR in terminal.received
    assert b"100%" in terminal.received
    assert any(terminal.lines)
    assert not any("\u2501" in line for line in terminal.lines)
    # A kill leaves the cursor visible.
    assert terminal.received.count(HIDE_CURSOR) == 1
    hidden_at = terminal.received.find(HIDE_CURSOR)
    assert hidden_at < terminal.received.find(SHOW_CURSOR) < terminal.received.find(b"100%")


@pytest.mark.thorough
def test_without_a_terminal_or_with_json_there_is_no_bar(commands: Commands, folder: Path) -> None:
    program = (
        "import sys; from statehold.shell.entry import main; code = main(); "
        "sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    )
    line = commands.line(*words_of("export", folder))
    given = line[line.index("statehold") + 1 :]
    ran = subprocess.run(
        [sys.executable, "-c", program, *given], capture_output=True, text=True, check=True
    )
    assert "rich" not in ran.stderr.split()
    terminal = shown(commands.line(*words_of("export", folder, "second"), "--json"))
    assert b"\x1b" not in terminal.received
    assert isinstance(json.loads("".join(terminal.lines)), dict)


@pytest.mark.thorough
def test_a_bar_is_beside_a_document_in_a_pipe(commands: Commands, folder: Path) -> None:
    document = folder / "document"
    line = shlex.join(commands.line("sessions", "export", "long", "-"))
    terminal = shown(["sh", "-c", f"{line} > {document}"])
    assert BAR in terminal.received
    assert not any(terminal.lines)
    assert len(json.loads(document.read_text())["journal"]) >= ENTRIES


@pytest.mark.thorough
def test_a_failure_ends_the_bar_before_its_reason(commands: Commands, folder: Path) -> None:
    taken = folder / "copy.json"
    taken.touch()
    with program_in_terminal(commands.line("sessions", "export", "long", str(taken))) as terminal:
        assert terminal.wait_for_end() == USAGE
    assert BAR in terminal.received
    assert "is there already" in "".join(terminal.lines)
    assert not any("\u2501" in line for line in terminal.lines)


@pytest.mark.thorough
def test_an_installation_shows_what_it_does(
    commands: Commands, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = folder / "statehold.toml"
    browser = {"type": "browser", "channel": "chromium-headless-shell"}
    config.write_text(toml({"services": {"browser": browser}}))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(folder / "browsers"))
    monkeypatch.setenv("PLAYWRIGHT_HOST_PLATFORM_OVERRIDE", "debian12-x64")
    line = commands.line("doctor", "--install", configured=False)
    line[line.index("doctor") : line.index("doctor")] = ["--config", str(config)]
    with browser_mirror() as mirror:
        monkeypatch.setenv("PLAYWRIGHT_DOWNLOAD_HOST", mirror)
        with program_in_terminal(line, columns=120, rows=40) as terminal:
            terminal.wait_for_end()
    assert BAR in terminal.received
    assert b"Downloading Chrome Headless Shell" in terminal.received
    [began, *rest] = [line for line in terminal.lines if line.startswith("statehold: ")]
    assert "installing Playwright's headless shell" in began
    assert "installed Playwright's headless shell" in rest[-1]
    assert any(line.startswith("ok") and "service browser" in line for line in terminal.lines)
    assert not any("\u2501" in line for line in terminal.lines)
    assert os.listdir(folder / "browsers")
