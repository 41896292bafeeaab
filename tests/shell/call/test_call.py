"""`statehold call`: what it prints, what it exits with, and what it leaves behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.gateway_process import STATEHOLD
from support.selection import matrix
from support.tool_commands import Commands
from support.waiting import until_blocking

from statehold.server.exit_codes import (
    INTERRUPTED,
    NOT_FOUND,
    OK,
    TOOL_FAILED,
    UNKNOWN,
    USAGE,
)

SLOW = 30


def test_calls_share_a_session_and_name_a_new_one_once(commands: Commands) -> None:
    first = commands("call", "counting", "inc", "n=2")
    second = commands("call", "counting", "inc")
    assert (first.returncode, first.stdout) == (OK, "2\n")
    assert first.stderr == "statehold: session counting is new\n"
    assert (second.returncode, second.stdout, second.stderr) == (OK, "3\n", "")


@pytest.mark.thorough
def test_a_command_without_a_configuration_takes_the_server_that_runs(commands: Commands) -> None:
    commands.output("call", "plain", "get")
    ran = commands("call", "plain", "get", configured=False)
    assert (ran.returncode, ran.stdout) == (OK, "0\n")


def test_the_error_for_an_unknown_tool_names_a_service_that_the_server_lacks(
    own_commands: Commands,
) -> None:
    config = own_commands.shared.config
    own_commands.output("call", "moved", "get")
    own_commands.output("stop")
    config.write_text(
        config.read_text()
        .replace("asking", "other", 1)
        .replace("services.asking", "services.other")
    )
    ran = own_commands("call", "moved", "gte")
    assert ran.returncode == USAGE
    assert "uses asking, which this server does not have" in ran.stderr
    assert "this server does not have" not in own_commands("call", "fresh", "gte").stderr


def test_json_is_the_whole_result_in_one_line(commands: Commands) -> None:
    text = commands.output("call", "json", "get", "--json")
    assert text.count("\n") == 1
    result = json.loads(text)
    assert result["structuredContent"]["count"] == 0


@pytest.fixture(scope="module")
def with_codes(commands: Commands) -> Commands:
    commands.output("call", "codes", "get")
    return commands


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("call", "codes", "fail"), TOOL_FAILED, ""),
        (("call", "codes", "inc", "n=x"), USAGE, "n: should be a whole number, found 'x'."),
        (("call", "codes", "inc", "m=1"), USAGE, "Arguments of inc: [n=integer]"),
        (
            ("call", "codes", "icn"),
            USAGE,
            "Unknown tool: icn. Did you mean inc? See: statehold tools",
        ),
        (("call", "codes"), USAGE, "it takes a session, a tool"),
        (("call", "codes", "get", "--nothing"), USAGE, "there is no option --nothing"),
        (
            ("call", "code", "get", "--exists"),
            NOT_FOUND,
            "There is no session code. Did you mean codes?",
        ),
        (("call", "codes", "get", "--timout=3"), USAGE, "did you mean --timeout?"),
        (("call", "codes", "session_bind", "service=asknig"), USAGE, "Did you mean asking?"),
        (("call", "codes", "get", "--new"), USAGE, "There is a session codes already."),
        (("call", "codse", "get"), NOT_FOUND, "but one called codes"),
        (("call", "sh_00000000000000000000000000", "get"), NOT_FOUND, "no such session"),
    ],
    ids=str,
)
def test_the_exit_code_and_one_line_say_why(
    with_codes: Commands, words: tuple[str, ...], code: int, says: str
) -> None:
    ran = with_codes(*words)
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    if code != TOOL_FAILED:
        assert ran.stderr.count("\n") == 1
        assert ran.stdout == ""


@pytest.mark.thorough
def test_a_missing_file_of_settings_is_wrong_usage() -> None:
    line = [*STATEHOLD, "tools", "--config", "/none.toml"]
    ran = subprocess.run(line, capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (USAGE, b"")
    assert b"/none.toml: No such file or directory; correct --config" in ran.stderr


def test_the_next_step_of_an_error_is_a_command_that_works(commands: Commands) -> None:
    commands.output("call", "bare", "get")
    commands.output("call", "bare", "session_unbind", "service=asking")
    ran = commands("call", "bare", "get")
    command = "statehold call bare session_bind service=asking"
    assert (ran.returncode, command in ran.stderr) == (USAGE, True), ran.stderr
    commands.output(*command.split()[1:])
    assert commands.output("call", "bare", "get", "-q") == "0\n"


@pytest.mark.thorough
def test_numbered_names_are_no_misspellings(commands: Commands) -> None:
    commands.output("call", "task1", "get")
    commands.output("call", "task2", "get")


def test_texts_come_from_files_and_stdin(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("line 1\nline 2 'quoted'\n")
    words = ["text=-", f"other=@{tmp_path / 'text'}", "at=@@name", "number:=7"]
    big = "ä" * (1 << 19)
    echoed = json.loads(commands.output("call", "files", "echo", *words, given=big.encode()))
    assert echoed["arguments"] == {
        "text": big,
        "other": "line 1\nline 2 'quoted'\n",
        "at": "@name",
        "number": 7,
    }


@pytest.mark.parametrize("words", matrix(["-"], ["@{file}"], ["values:=-"], ["values:=@{file}"]))
def test_json_comes_from_files_and_stdin(
    commands: Commands, tmp_path: Path, words: list[str]
) -> None:
    document = {"a": [1, {"b": "ä 'quoted'"}]}
    (tmp_path / "file").write_text(json.dumps(document))
    words = [word.format(file=tmp_path / "file") for word in words]
    given = json.dumps(document).encode()
    echoed = json.loads(commands.output("call", "json", "echo", *words, given=given))
    assert echoed["arguments"] == ({"values": document} if ":=" in words[0] else document)


def test_a_json_argument_without_quotes_names_the_ways_that_need_none(commands: Commands) -> None:
    ran = commands("call", "json", "echo", "{n:1}")
    assert (ran.returncode, "PowerShell" in ran.stderr) == (USAGE, True)
    ran = commands("call", "json", "echo", "-", given=b"[1]")
    assert (ran.returncode, "JSON object" in ran.stderr) == (USAGE, True)


def test_ctrl_c_cancels_the_call(commands: Commands) -> None:
    commands.output("call", "cancelled", "get")
    process = subprocess.Popen(
        commands.line("call", "cancelled", "hang", "--progress"), stdout=subprocess.DEVNULL
    )
    until_blocking(lambda: "hang" in commands.log.read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(SLOW) == INTERRUPTED
    until_blocking(lambda: '"cancelled"' in commands.log.read_text())


@pytest.mark.thorough
def test_progress_is_written_to_stderr(commands: Commands) -> None:
    ran = commands("call", "progress", "slow", "seconds=0.2", "--progress")
    assert ran.stdout == "done\n"
    assert "statehold: 5 of 5" in ran.stderr


@pytest.mark.thorough
def test_a_reader_that_leaves_is_no_error(commands: Commands) -> None:
    line = [*commands.line("call", "pipe", "echo", "text=-"), "|", "head", "-c1"]
    shell = " ".join(f"'{word}'" if word != "|" else word for word in line)
    ran = subprocess.run(
        ["sh", "-c", shell], input=b"x" * (1 << 20), capture_output=True, timeout=60, check=True
    )
    assert ran.stderr.count(b"\n") <= 1, ran.stderr


@pytest.mark.thorough
def test_a_killed_server_leaves_the_outcome_unknown(own_commands: Commands) -> None:
    own_commands.output("call", "killed", "get")
    process = subprocess.Popen(
        own_commands.line("call", "killed", "slow", "seconds=60"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until_blocking(lambda: "slow" in own_commands.log.read_text())
    kill_server(own_commands)
    _, errors = process.communicate(timeout=SLOW)
    assert process.returncode == UNKNOWN, errors
    assert "look at its effect" in errors


@pytest.mark.thorough
def test_a_call_with_an_operation_id_is_repeated_by_hand_at_most_once(
    own_commands: Commands,
) -> None:
    for _ in range(2):
        assert own_commands.output("call", "once", "inc", "--operation", "order-1") == "1\n"
    assert own_commands.output("call", "once", "get") == "1\n"


@pytest.mark.thorough
def test_a_call_with_an_operation_id_goes_on_after_the_server_was_killed(
    own_commands: Commands,
) -> None:
    own_commands.output("call", "first", "get")
    line = own_commands.line("call", "later", "slow", "seconds=3", "--operation", "order-2")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until_blocking(lambda: "slow" in own_commands.log.read_text())
    kill_server(own_commands)
    output, errors = process.communicate(timeout=SLOW)
    # The keeper holds the server behind the session on Linux, so its answer arrives; else nobody knows.
    assert (process.returncode, output) in ((OK, "done\n"), (UNKNOWN, "")), errors


@pytest.mark.thorough
def test_a_terminal_gets_no_control_characters(commands: Commands) -> None:
    words = ("call", "controls", "echo", "text=\x1b[2Jred")
    assert "\\u001b[2J" in commands.output(*words)
    terminal, end = pty.openpty()
    with subprocess.Popen(commands.line("call", "\x1b[2J", "get"), stdout=end, stderr=end) as ran:
        os.close(end)
        shown = os.read(terminal, 4096)
        ran.wait(SLOW)
    os.close(terminal)
    assert b"\x1b[2J" not in shown


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_texts_from_files_and_stdin_are_in_no_process_list(
    commands: Commands, tmp_path: Path
) -> None:
    secret = "s3cret-of-the-process-list"
    (tmp_path / "secret").write_text(secret)
    words = ("call", "hidden", "slow", "seconds=1", f"other=@{tmp_path / 'secret'}", "text=-")
    process = subprocess.Popen(
        commands.line(*words), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stdin is not None
    process.stdin.write(secret.encode())
    process.stdin.close()
    while process.poll() is None:
        assert secret not in command_lines()
    assert secret not in command_lines()


def command_lines() -> str:
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)


def kill_server(commands: Commands) -> None:
    status = commands.shared.status()
    assert status is not None
    os.kill(status["pid"], signal.SIGKILL)
