"""Questions of tools: answered by a second command, or at a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import pytest
from support.tool_commands import Commands
from support.waiting import until_blocking

from statehold.server.exit_codes import ASKS, BUSY, NOT_FOUND, OK, UNKNOWN, USAGE


def asked(commands: Commands, session: str) -> str:
    """Have a tool ask, and return the id of its task."""
    commands.output("call", session, "get")
    ran = commands("call", session, "ask")
    assert ran.returncode == ASKS, ran.stderr
    assert ran.stdout.startswith("asking asks: What is the answer?\n  answer (text)\n")
    last = ran.stdout.splitlines()[-1]
    found = re.fullmatch(r"answer with: statehold answer (sh_\S+\.task-\S+) answer=\.\.\.", last)
    assert found is not None, last
    return found[1]


def test_a_second_command_answers_the_question_of_the_first(commands: Commands) -> None:
    task = asked(commands, "asks")
    wrong = commands("answer", task, "size=3")
    assert (wrong.returncode, "no field 'size'" in wrong.stderr) == (USAGE, True)
    missing = commands("answer", task)
    assert (missing.returncode, "answer: required" in missing.stderr) == (USAGE, True)
    right = commands("answer", task, "answer=42")
    assert right.returncode == OK, right.stderr
    assert "42" in right.stdout
    again = commands("answer", task, "answer=42")
    assert (again.returncode, again.stdout) == (NOT_FOUND, "")


def test_a_session_that_is_busy_with_a_question_says_how_to_answer_it(commands: Commands) -> None:
    task = asked(commands, "busy")
    ran = commands("call", "busy", "session_pause")
    assert ran.returncode == BUSY, ran.stderr
    assert f"statehold answer {task}" in ran.stderr
    assert "statehold sessions close busy --force" in ran.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_result_that_could_not_be_written_is_kept(
    commands: Commands,
) -> None:
    task = asked(commands, "full")
    line = commands.line("answer", task, "answer=42")
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == UNKNOWN
    assert f"statehold tasks wait {task}" in ran.stderr.decode()
    assert "42" in commands.output("tasks", "wait", task)


@pytest.mark.thorough
def test_a_question_can_be_declined(commands: Commands) -> None:
    ran = commands("answer", asked(commands, "declines"), "--decline")
    assert ran.returncode == OK, ran.stderr
    assert "decline" in ran.stdout


def test_a_person_at_a_terminal_is_asked(commands: Commands) -> None:
    commands.output("call", "terminal", "get")
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        commands.line("call", "terminal", "ask"), stdin=end, stdout=end, stderr=end
    )
    os.close(end)
    shown = bytearray()

    def is_shown(text: bytes) -> bool:
        shown.extend(os.read(terminal, 4096))
        return text in shown

    until_blocking(lambda: is_shown(b"answer (text): "))
    os.write(terminal, b"blue\n")
    assert process.wait(30) == OK
    until_blocking(lambda: is_shown(b"blue") and b"accept" in shown)
    os.close(terminal)
