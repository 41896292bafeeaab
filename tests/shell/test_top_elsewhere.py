"""`statehold top` over the sessions of a server at an address, in a real terminal."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.gateway_process import STATEHOLD, Running, kill, service, serving, toml
from support.selection import matrix
from support.terminal import ScreenTerminal, program_in_terminal
from support.token_file import write_tokens

from statehold.server.exit_codes import FAILURE, OK, USAGE
from statehold.shell.top.remote import NOTE


class RemoteServer:
    """A server with a token, and the commands of a person on another machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config, self.token_file = folder / "statehold.toml", folder / "token"
        token = secrets.token_hex(32)
        self.token_file.write_text(token)
        self.token_file.chmod(0o600)
        write_tokens(folder / "tokens", f"{token} ada\n")
        settings = {
            "server": {"tokens": str(folder / "tokens")},
            "services": {"asking": service("asking")},
        }
        self.config.write_text(toml(settings))

    @contextmanager
    def on(self, *options: str) -> Generator[Running]:
        with serving(self.config, self.folder / "data", *options) as running:
            self.url = running.url
            yield running

    def line(self, *words: str) -> list[str]:
        return [*STATEHOLD, *words, "--url", self.url, "--token-file", str(self.token_file)]

    def call(self, *words: str) -> str:
        ran = subprocess.run(
            self.line("call", *words), capture_output=True, text=True, timeout=60, check=True
        )
        return ran.stdout

    @contextmanager
    def top(self, *, columns: int = 100) -> Generator[ScreenTerminal]:
        with program_in_terminal(self.line("top"), columns=columns, term="xterm") as terminal:
            terminal.wait_for_text("SESSION", "STATUS")
            yield terminal


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RemoteServer]:
    server = RemoteServer(tmp_path_factory.mktemp("elsewhere"))
    with server.on():
        server.call("work", "inc")
        yield server


def test_the_screen_follows_a_server_at_an_address_and_keys_change_it(
    server: RemoteServer,
) -> None:
    server.call("play", "inc")
    with server.top() as terminal:
        assert NOTE in terminal.lines[0]
        terminal.press("\x1b[H")
        terminal.wait_for_text("> play", "idle", "used")
        # The services of the selected session; MCP does not tell their processes.
        terminal.wait_for_text("asking", "open", "1")
        assert not any("PID" in line or "MB" in line for line in terminal.lines)
        terminal.press("o")
        terminal.wait_for_text("on the machine of the server: statehold sessions open play")
        terminal.press("p")
        terminal.wait_for_text("play is paused")
        terminal.wait_for_text("> play", "paused")
        terminal.press("r")
        terminal.wait_for_text("play is idle")
        terminal.press("cy")
        terminal.wait_for_text("play is closed")
        terminal.wait_for_text("> work")
        terminal.press("q")
        assert terminal.wait_for_end() == OK
        assert terminal.settings == terminal.first_settings


@pytest.mark.thorough
def test_a_call_shows_whether_its_session_is_selected_or_not(server: RemoteServer) -> None:
    server.call("busy", "inc")
    with server.top() as terminal:
        calls = subprocess.Popen(
            server.line("call", "busy", "slow", "seconds=60"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for name in ("work", "busy"):
                terminal.press(f"\x1b/{name}\r\x1b")
                terminal.wait_for_text(f"> {name}")
                terminal.wait_for_text("busy", "active", "runs", "a call")
        finally:
            calls.terminate()
            calls.wait(20)
        terminal.press("cy")
        terminal.wait_for_text("busy is closed")


@pytest.mark.thorough
def test_the_screen_goes_on_with_the_next_server(tmp_path: Path) -> None:
    server = RemoteServer(tmp_path)
    with server.on() as running:
        server.call("work", "inc")
        port = running.url.rpartition(":")[2]
        with server.top() as terminal:
            terminal.wait_for_text("> work")
            kill(running)
            terminal.wait_for_text("cannot be reached: Connection refused")
            with server.on("--port", port):
                terminal.wait_for_text("> work")
                terminal.press("q")
                assert terminal.wait_for_end() == OK


@pytest.mark.thorough
def test_a_narrow_screen_leaves_out_the_note(server: RemoteServer) -> None:
    for columns in (40, 60, 160):
        with server.top(columns=columns) as terminal:
            terminal.wait_for_text("> work")
            assert terminal.lines[0].startswith("statehold top  127.0.0.1")
            assert (NOTE in terminal.lines[0]) is (columns == 160)


def test_without_a_terminal_the_table_leaves_out_unknown_columns(server: RemoteServer) -> None:
    ran = subprocess.run(server.line("top"), capture_output=True, text=True, timeout=60, check=True)
    [head, *rows] = ran.stdout.splitlines()
    assert head.split() == ["SESSION", "STATUS", "LAST", "CALL"]
    assert [row.split()[:2] for row in rows] == [["work", "idle"]]


def test_a_call_over_an_address_imports_no_sdk(server: RemoteServer) -> None:
    line = server.line("call", "work", "get")
    program = (
        "import sys; from statehold.shell.entry import main; code = main(); "
        "sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    )
    words = line[line.index("statehold") + 1 :]
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program, *words], capture_output=True, text=True, check=True
    )
    assert {"mcp", "mcp_types", "pydantic", "anyio", "click"} & set(ran.stderr.split()) == set()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    matrix(
        (("--url", "URL", "--token-file", "WRONG"), FAILURE, "does not know the token"),
        (("--url", "URL"), FAILURE, "asks for a token; see --token-file"),
        (("--url", "URL", "--token-file", "NONE"), USAGE, "No such file"),
        (("--url", "127.0.0.1:1"), USAGE, "--url should be http://HOST:PORT"),
        (("--url", "http://127.0.0.1:1"), FAILURE, "cannot be reached"),
    ),
    ids=str,
)
def test_a_server_that_cannot_be_asked_is_reported_in_one_line(
    server: RemoteServer, tmp_path: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    (tmp_path / "wrong").write_text(secrets.token_hex(32))
    (tmp_path / "wrong").chmod(0o600)
    known = {
        "URL": server.url,
        "WRONG": str(tmp_path / "wrong"),
        "NONE": str(tmp_path / "none"),
    }
    command = [*STATEHOLD, "top", *(known.get(word, word) for word in words)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (code, "", 1), ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
