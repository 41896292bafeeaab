"""`statehold top` in a real terminal and in a pipe, over a real server."""

from __future__ import annotations

import http.server
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import STATEHOLD, Running, kill, service, serving, toml
from support.selection import matrix
from support.terminal import ScreenTerminal, program_in_terminal
from support.token_file import write_tokens
from support.tool_commands import Commands, tool_commands

from statehold.server.exit_codes import FAILURE, INTERRUPTED, USAGE

HOSTILE = "odd\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\nend"
HOSTILE_SESSION: dict[str, Any] = {
    "session_id": HOSTILE,
    "name": HOSTILE,
    "status": "idle",
    "created_at": "2026-01-01T00:00:00Z",
    "used_at": "2026-01-01T00:00:00Z",
}
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Generator[Commands]:
    with tool_commands(tmp_path_factory.mktemp("top")) as commands:
        commands.output("call", "work", "inc")
        yield commands


@contextmanager
def top(line: list[str], *, columns: int = 100) -> Generator[ScreenTerminal]:
    with program_in_terminal(line, columns=columns, term="xterm") as terminal:
        terminal.wait_for_text("SESSION", "STATUS")
        yield terminal


def wait_for_rows(terminal: ScreenTerminal, *names: str) -> None:
    """Wait until the table has the rows of these sessions, in this order. A screen may be half drawn before."""
    terminal.wait_for(
        lambda lines: [line.split()[0] for line in lines[3:] if line] == [*names], repr(names)
    )


@contextmanager
def slow_call(line: list[str]) -> Generator[None]:
    """A call that runs until the end of the block, which interrupts it."""
    call = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        call.send_signal(signal.SIGINT)
        call.wait(20)


@pytest.mark.thorough
def test_the_table_follows_the_sessions_until_ctrl_c(commands: Commands) -> None:
    with top(commands.line("top", configured=False)) as terminal:
        commands.output("call", "play", "inc")
        terminal.wait_for_text("play", "idle for", " MB", "ok", "inc")
        # The newest session comes first.
        wait_for_rows(terminal, "play", "work")
        with slow_call(commands.line("call", "play", "slow", "seconds=60")):
            terminal.wait_for_text("play", "active", "runs", "slow")
        terminal.wait_for_text("play", "idle", "cancelled", "slow")
        assert "answer with" in commands("call", "work", "ask", "--no-input").stdout
        terminal.wait_for_text("work", "asks", "ask")
        # A session with a question comes before the others.
        wait_for_rows(terminal, "work", "play")
        commands.output("sessions", "close", "work", "--force")
        commands.output("call", "work", "inc")
        commands.output("sessions", "pause", "play")
        terminal.wait_for_text("1 idle   1 paused", "calls/s", "MB of memory")
        commands.output("sessions", "close", "play")
        terminal.wait_for(lambda lines: not any("play" in each for each in lines), "one session")
        terminal.press("\x03")
        assert terminal.wait_for_end() == INTERRUPTED


@pytest.mark.parametrize(
    ("end", "code"),
    matrix((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, -15), (signal.SIGHUP, -1)),
)
def test_the_terminal_is_as_before_at_every_end(
    commands: Commands, end: signal.Signals, code: int
) -> None:
    with top(commands.line("top", configured=False)) as terminal:
        os.kill(terminal.pid, end)
        assert terminal.wait_for_end() == code
        assert terminal.received.rfind(SHOW_CURSOR) > terminal.received.rfind(HIDE_CURSOR)
        assert terminal.settings == terminal.first_settings
        assert b"Traceback" not in terminal.received


@pytest.mark.thorough
def test_the_table_fits_every_size_of_the_terminal(commands: Commands) -> None:
    commands.output("call", "\u30bb\u30c3\u30b7\u30e7\u30f3", "inc")
    with top(commands.line("top", configured=False), columns=160) as terminal:
        for columns, rows in ((80, 24), (40, 10), (160, 50), (30, 5)):
            terminal.resize(columns, rows)
            terminal.screen.reset()
            # The newest one is first, and the last line counts the others.
            last = "... and 1 more" if rows == 5 else "work"
            terminal.wait_for(
                lambda lines, last=last: (
                    lines[0].startswith("statehold top")
                    and lines[2].startswith("SESSION")
                    and lines[3].startswith("\u30bb")
                    and lines[4].startswith(last)
                    and not any(lines[5:])
                ),
                f"{columns} x {rows}",
            )
    commands.output("sessions", "close", "\u30bb\u30c3\u30b7\u30e7\u30f3")


@pytest.mark.thorough
def test_all_processes_of_a_data_folder_are_asked(commands: Commands) -> None:
    with serving(commands.shared.config, commands.shared.data) as running:
        address = [*STATEHOLD, "call", "beside", "inc", "--url", running.url]
        subprocess.run(address, check=True, capture_output=True, timeout=60)
        with top(commands.line("top", configured=False), columns=140) as terminal:
            terminal.wait_for_text("with 2 servers")
            terminal.wait_for_text("beside", "ok", "inc")
            terminal.wait_for_text("work", "ok", "inc")
    commands.output("sessions", "close", "beside")


def test_without_a_terminal_one_table_is_printed(commands: Commands) -> None:
    table = commands.output("top").splitlines()
    assert table[0].split() == ["SESSION", "STATUS", "CALLS/S", "MEMORY", "LAST", "CALL"]
    [row] = [line for line in table[1:] if line.startswith("work")]
    assert re.fullmatch(r"work +idle for .*0\.0 .*MB +ok .* ago: inc", row)


def test_without_a_server_nothing_is_shown(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*STATEHOLD, "--data", str(tmp_path), "top"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == FAILURE
    assert f"no server runs for {tmp_path}; `statehold serve`" in ran.stderr


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

    def call(self, *words: str) -> None:
        subprocess.run(self.line("call", *words), capture_output=True, timeout=60, check=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RemoteServer]:
    server = RemoteServer(tmp_path_factory.mktemp("elsewhere"))
    with server.on():
        server.call("work", "inc")
        yield server


def test_the_sessions_of_a_server_at_an_address_are_printed(server: RemoteServer) -> None:
    ran = subprocess.run(server.line("top"), capture_output=True, text=True, timeout=60, check=True)
    [head, *rows] = ran.stdout.splitlines()
    assert head.split() == ["SESSION", "STATUS", "LAST", "CALL"]
    assert [row.split()[:3] for row in rows] == [["work", "idle", "used"]]


@pytest.mark.parametrize(
    "answer",
    matrix(
        {"structuredContent": {"sessions": [HOSTILE_SESSION]}},
        {"isError": True, "content": [{"type": "text", "text": HOSTILE}]},
    ),
    ids=["name", "error"],
)
def test_a_text_of_a_server_does_not_control_the_terminal(answer: dict[str, Any]) -> None:
    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = [*STATEHOLD, "top", "--url", f"http://127.0.0.1:{server.server_port}"]
        with program_in_terminal(line, columns=100) as terminal:
            terminal.wait_for_text("odd", "end")
        server.shutdown()
    assert not any(
        sign in terminal.received.decode() for sign in ("\x1b]", "\x9b", "\u202e", "\x07")
    )


@pytest.mark.thorough
def test_the_table_follows_a_server_at_an_address_and_the_one_after_it(tmp_path: Path) -> None:
    server = RemoteServer(tmp_path)
    with server.on() as running:
        server.call("work", "inc")
        port = running.url.rpartition(":")[2]
        with top(server.line("top")) as terminal:
            terminal.wait_for_text("no calls per second, no memory")
            with slow_call(server.line("call", "work", "slow", "seconds=60")):
                terminal.wait_for_text("work", "active", "runs", "a call")
            terminal.wait_for_text("work", "idle", "used")
            kill(running)
            terminal.wait_for_text("cannot be reached: Connection refused")
            with server.on("--port", port):
                terminal.wait_for_text("work", "idle", "used")
                terminal.press("\x03")
                assert terminal.wait_for_end() == INTERRUPTED


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
    assert {"mcp", "mcp_types", "pydantic", "click"} & set(ran.stderr.split()) == set()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    matrix(
        (("--url", "URL", "--token-file", "WRONG"), FAILURE, "does not know the token"),
        (("--url", "URL"), FAILURE, "asks for a token"),
        (("--url", "URL", "--token-file", "NONE"), USAGE, "No such file"),
        (("--url", "URL", "--token-file", "WORDS"), USAGE, "a line that is a token"),
        (("--url", "TLS"), FAILURE, "speaks no TLS"),
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
    (tmp_path / "words").write_text('data = "data"\n')
    known = {
        "URL": server.url,
        "WRONG": str(tmp_path / "wrong"),
        "NONE": str(tmp_path / "none"),
        "WORDS": str(tmp_path / "words"),
        "TLS": server.url.replace("http:", "https:"),
    }
    command = [*STATEHOLD, "top", *(known.get(word, word) for word in words)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (code, "", 1), ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
