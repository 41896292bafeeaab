"""Calls that outlive their commands: `call --detach`, `call --timeout` and `statehold tasks`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest
from support.gateway_process import service, serving, toml
from support.task_client import Gate
from support.tool_commands import Commands
from support.waiting import until_blocking

from statehold.server.exit_codes import INTERRUPTED, NOT_FOUND, OK, UNKNOWN, USAGE
from statehold.server.sockets.processes import read_processes
from statehold.sessions.json_codec import JSON

SLOW = 30


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def detached(commands: Commands, gate: Gate, session: str, *options: str) -> str:
    """Begin a call that waits for the gate, and return the id of its task, which is all of stdout."""
    commands.output("call", session, "get")
    line = commands.output("call", session, "hold", f"fifo={gate.path}", "--detach", *options)
    assert line.startswith("sh_")
    assert line.count("\n") == 1
    return line.rstrip()


def listed(commands: Commands, task: str) -> JSON:
    found: list[JSON] = json.loads(commands.output("tasks", "--json"))
    return next((each for each in found if each["task_id"] == task), JSON())


def test_another_command_waits_for_a_detached_call(commands: Commands, gate: Gate) -> None:
    task = detached(commands, gate, "detached", "--operation", "order-1")
    assert task.endswith(".order-1")
    found = listed(commands, task)
    assert (found["session_name"], found["tool"], found["status"]) == (
        "detached",
        "hold",
        "working",
    )
    table = commands.output("tasks")
    assert table.startswith("task")
    assert task in table
    process = subprocess.Popen(
        commands.line("tasks", "wait", task), stdout=subprocess.PIPE, text=True
    )
    gate.path.write_text("")
    assert process.communicate(timeout=SLOW)[0] == "held\n"
    assert process.returncode == OK
    assert commands.output("tasks", "wait", task) == "held\n"
    [block] = json.loads(commands.output("tasks", "wait", task, "--json"))["content"]
    assert block["text"] == "held"
    assert listed(commands, task) == {}


def test_a_call_past_its_time_limit_goes_on(commands: Commands, gate: Gate) -> None:
    commands.output("call", "limited", "get")
    ran = commands("call", "limited", "hold", f"fifo={gate.path}", "--timeout", "0.5")
    assert (ran.returncode, ran.stdout) == (UNKNOWN, "")
    words = ran.stderr.rstrip().partition("statehold tasks wait ")
    assert "hold runs longer than 0.5 seconds; it goes on" in words[0]
    gate.path.write_text("")
    assert commands.output("tasks", "wait", words[2]) == "held\n"


def test_who_waits_leaves_the_call_alone_and_cancel_ends_it(commands: Commands) -> None:
    commands.output("call", "left", "get")
    words = ("call", "left", "slow", "seconds=20", "--detach", "--progress")
    task = commands.output(*words).rstrip()
    process = subprocess.Popen(
        commands.line("tasks", "wait", task, "--progress"), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "statehold: 1 of 5\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(SLOW) == INTERRUPTED
    process.stderr.close()
    assert listed(commands, task)["status"] == "working"
    assert commands.output("tasks", "cancel", task) == ""
    ran = commands("tasks", "wait", task)
    assert ran.returncode == UNKNOWN
    assert "was cancelled" in ran.stderr
    assert listed(commands, task) == {}


def test_a_question_outlives_a_command_that_is_killed_at_its_terminal(commands: Commands) -> None:
    commands.output("call", "killed", "get")
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        commands.line("call", "killed", "ask"), stdin=end, stdout=end, stderr=end
    )
    os.close(end)
    until_blocking(lambda: b"answer (text): " in os.read(terminal, 4096))
    process.kill()
    process.wait(SLOW)
    os.close(terminal)
    [task] = [
        each["task_id"]
        for each in json.loads(commands.output("tasks", "--json"))
        if each["session_name"] == "killed" and "What is the answer?" in each["question"]
    ]
    wrong = commands("tasks", "answer", task, "size=3")
    assert (wrong.returncode, "no field 'size'" in wrong.stderr) == (USAGE, True)
    assert "42" in commands.output("tasks", "answer", task, "answer=42")
    assert "42" in commands.output("tasks", "wait", task)


@pytest.mark.thorough
def test_a_command_waits_on_after_the_server_was_killed(own_commands: Commands, gate: Gate) -> None:
    task = detached(own_commands, gate, "lost")
    process = subprocess.Popen(
        own_commands.line("tasks", "wait", task), stdout=subprocess.PIPE, text=True
    )
    [server] = read_processes(own_commands.shared.data)
    os.kill(server["pid"], signal.SIGKILL)
    # It starts the next server.
    until_blocking(
        lambda: any(
            each["pid"] != server["pid"] for each in read_processes(own_commands.shared.data)
        )
    )
    gate.path.write_text("")
    output, _ = process.communicate(timeout=SLOW)
    # The keeper holds the server behind the session on Linux, so its answer arrives; else nobody knows.
    assert (process.returncode, output) in ((OK, "held\n"), (UNKNOWN, ""))


def test_a_task_that_does_not_exist_is_not_found(commands: Commands) -> None:
    commands.output("call", "found", "get")
    for words in (("wait",), ("cancel",), ("answer",)):
        ran = commands("tasks", *words, "sh_x.task-y")
        assert (ran.returncode, "no such task" in ran.stderr) == (NOT_FOUND, True), ran.stderr
    assert commands("tasks", "wait").returncode == USAGE


@pytest.mark.thorough
def test_a_person_is_not_asked_for_by_a_question_without_a_terminal(commands: Commands) -> None:
    commands.output("call", "person", "get")
    words = ("call", "person", "session_request_human", "reason=a captcha", "wait_seconds=20")
    assert "Tell the user the address" in commands.output(*words)


@pytest.mark.thorough
def test_the_tasks_of_a_server_elsewhere(tmp_path: Path, commands: Commands, gate: Gate) -> None:
    config = tmp_path / "elsewhere.toml"
    upstream = service("asking", "--era", "legacy")
    toolsets = ["core", "lifecycle", "calls"]
    config.write_text(toml({"toolsets": toolsets, "services": {"asking": upstream}}))
    with serving(config, tmp_path / "data") as running:
        there = ("--url", running.url)
        held = commands.output("call", "far", "hold", f"fifo={gate.path}", "--detach", *there)
        [found] = json.loads(commands.output("tasks", "--json", *there))
        assert found["task_id"] == held.rstrip()
        gate.path.write_text("")
        assert commands.output("tasks", "wait", found["task_id"], *there) == "held\n"
        asked = commands("call", "far", "ask", *there).stdout
        task = asked.partition("statehold answer ")[2].split()[0]
        assert "42" in commands.output("answer", task, "answer=42", *there)
