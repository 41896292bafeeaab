"""The `statehold` command itself: its mistakes, its exit codes, and its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import gateway_process
from support.holding import Run
from support.selection import matrix

from statehold.server.exit_codes import OK, USAGE
from statehold.shell.command_line import read_settings
from statehold.shell.commands import parse_command_line as parse


@pytest.mark.parametrize(
    "words", matrix(["--help"], ["--version"], ["sessions", "close", "--help"])
)
def test_version_and_help_import_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys; from statehold.shell.main import main; code = main(sys.argv[1:]);"
        "heavy = {'mcp', 'sqlalchemy', 'uvicorn', 'starlette', 'pydantic', 'anyio', 'httpx2'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "statehold" in ran.stdout


def test_a_client_of_the_background_server_imports_little() -> None:
    program = (
        "import sys, statehold.shell.entry, statehold.shell.main, statehold.shell.shared;"
        "heavy = {'click', 'pydantic', 'dataclasses', 'inspect', 'tempfile', 'asyncio'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_flags_count_before_and_after_the_command() -> None:
    before = parse(["--data", "d", "--session", "s", "--ephemeral", "sessions", "show", "x"])
    after = parse(["sessions", "show", "x", "--data", "d", "--session", "s", "--ephemeral"])
    assert before == after
    assert (before.data, before.session, before.ref) == ("d", "s", "x")
    assert parse(["--port", "1", "serve", "--port", "2"]).port == "2"
    assert not hasattr(parse(["serve"]), "port")


@pytest.mark.parametrize(
    "line", ["", "--data d --shared", "--port 1 --port=2", "--config= --session=a=b"]
)
def test_settings_alone_are_read_as_click_reads_them(line: str) -> None:
    words = line.split()
    assert read_settings(words) == parse(words)


@pytest.mark.parametrize(
    "line",
    ["serve", "--data", "--data --shared", "--shared=yes", "--version", "--bogus", "--", "-h"],
)
def test_another_command_line_is_left_to_click(line: str) -> None:
    assert read_settings(["--ephemeral", *line.split()]) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prot", "1"], "there is no option --prot, did you mean --port?; see statehold --help"),
        (["--bogus"], "there is no option --bogus; see statehold --help"),
        (["serve", "--verbose"], "there is no option --verbose"),
        (["seve"], "there is no 'seve', did you mean serve?"),
        (["sessions"], "required: ACTION; see statehold sessions --help"),
        (["sessions", "lst"], "there is no 'lst', did you mean list?"),
        (["sessions", "list", "--status", "idel"], "there is no 'idel', did you mean idle?"),
        (["sessions", "list", "--force"], "there is no --force here"),
        (["sessions", "list", "extra"], "there is no extra here"),
        (["sessions", "list", "--limit", "0"], "should be a number from 1 on, found '0'"),
        (["sessions", "show"], "required: SESSION"),
        (["sessions", "purge"], "purge needs either sessions or --closed"),
        (["sessions", "purge", "x", "--closed"], "purge needs either sessions or --closed"),
        (["sessions", "list", "--ephemeral"], "nothing is kept"),
        (["serve", "--port", "99999"], "--port: should be less than or equal to 65535"),
        (["serve", "--host", "0.0.0.0"], "--host: listening on 0.0.0.0 without authentication"),
        (["--config", "/none.toml"], "/none.toml: there is no such file; correct --config"),
        (
            ["--session", "a", "--auto-session"],
            "a pinned session and auto_session exclude each other",
        ),
        (["services", "check", "none"], "none: is not an enabled service"),
    ],
)
def test_mistake_is_one_line_and_exit_code_2(
    statehold: Run, words: list[str], message: str
) -> None:
    """The message names the missing file and the option that named it."""
    output = statehold(*words)
    assert output.code == USAGE
    assert message in output.err.splitlines()[-1]
    assert output.out == ""


def test_mistake_of_a_real_process_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[timeouts]\nidel = 3\n")
    ran = subprocess.run(
        [*gateway_process.STATEHOLD, "serve", "--config", "c.toml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == USAGE
    assert ran.stderr == (
        "statehold: c.toml: timeouts.idel: is not a setting; did you mean timeouts.idle?\n"
    )


def test_reader_that_has_seen_enough_is_no_error(data: Path) -> None:
    with subprocess.Popen(
        [*gateway_process.statehold(), "sessions", "list", "--data", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == OK
