"""Many commands at once and one after the other: their order, and what they leave behind in the server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.tool_commands import Commands
from support.waiting import until_blocking

from statehold.server.exit_codes import OK, USAGE

pytestmark = pytest.mark.thorough

TESTS = Path(__file__).parents[2]
WARM, ALL = 1_000, 4_000
"""The commands after which the memory of the server is compared."""
BYTES_PER_COMMAND = 900
"""The growth is one step of a megabyte, 350 bytes a command; a client that stays takes thousands."""
PROCESSES = 4
SESSIONS = tuple(f"crowd{number}" for number in range(10))


def clients(commands: Commands) -> int:
    status = commands.shared.status()
    assert status is not None
    return status["clients"]


def counts_in_the_journal(commands: Commands, session: str) -> list[str]:
    """Return what the calls of `inc` returned, in the order of the journal."""
    shown = json.loads(commands.output("sessions", "show", session, "--last", "100", "--json"))
    return [
        entry["result"]["content"][0]
        for entry in shown["journal"]
        if entry["kind"] == "call" and entry["tool"] == "inc"
    ]


def test_fifty_commands_at_once_are_in_one_order_for_each_session(own_commands: Commands) -> None:
    for name in SESSIONS:
        own_commands.output("call", name, "get")
    processes = [
        subprocess.Popen(
            own_commands.line("call", SESSIONS[number % 10], "inc"),
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(50)
    ]
    found: dict[str, list[str]] = {}
    for number, process in enumerate(processes):
        out, _ = process.communicate(timeout=90)
        assert process.returncode == OK
        found.setdefault(SESSIONS[number % 10], []).append(out.strip())
    for name in SESSIONS:
        assert sorted(found[name]) == ["1", "2", "3", "4", "5"]
        # One call after the other: the journal has them in the order in which the service ran them.
        until_blocking(
            lambda name=name: counts_in_the_journal(own_commands, name) == ["1", "2", "3", "4", "5"]
        )
    assert clients(own_commands) == 0


def run_together(commands: Commands, *words: str) -> list[tuple[int, str]]:
    """Run a command six times at once. Return the exit code of each, and what it wrote to stderr."""
    line = commands.line(*words)
    processes = [
        subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    return [
        (process.returncode, err) for process in processes for _, err in [process.communicate()]
    ]


def test_of_several_first_calls_one_says_that_the_session_is_new(own_commands: Commands) -> None:
    own_commands.output("call", "other", "get")
    ran = run_together(own_commands, "call", "fresh", "inc")
    assert [code for code, _ in ran] == [OK] * 6
    assert sorted(err for _, err in ran) == [*[""] * 5, "statehold: session fresh is new\n"]
    assert own_commands.output("call", "fresh", "get") == "6\n"


@pytest.mark.thorough
def test_of_several_calls_that_ask_for_a_new_session_one_gets_it(own_commands: Commands) -> None:
    own_commands.output("call", "other", "get")
    ran = run_together(own_commands, "call", "fresh", "inc", "--new")
    assert sorted(code for code, _ in ran) == [OK, *[USAGE] * 5]
    # A call that created nothing leaves the name to the next one.
    assert own_commands("call", "later", "nosuch").returncode == USAGE
    ran = own_commands("call", "later", "get", "--new")
    assert (ran.returncode, ran.stderr) == (OK, "statehold: session later is new\n")


def run_commands(commands: Commands, count: int) -> None:
    """Run commands from a few processes, each of which has sessions of its own."""
    processes: list[subprocess.Popen[str]] = []
    for number in range(PROCESSES):
        sessions = SESSIONS[number::PROCESSES]
        line = [sys.executable, "-m", "support.command_load", str(commands.shared.data)]
        processes.append(
            subprocess.Popen(
                [*line, str(count // PROCESSES), *sessions],
                cwd=TESTS,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    total = sum(_sum(process) for process in processes)
    assert total >= count


def _sum(process: subprocess.Popen[str]) -> int:
    out, _ = process.communicate(timeout=200)
    assert process.returncode == OK
    counts: dict[str, int] = json.loads(out)
    return sum(counts.values())


def memory_of(pid: int) -> int:
    """Return the memory of a process without files; the logs of kept children are files in memory, of a fixed size."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.timeout(400)
def test_thousands_of_commands_leave_no_client_and_no_memory(own_commands: Commands) -> None:
    # A journal that grows fills the page cache of SQLite, which is bounded by itself.
    config = own_commands.shared.config
    config.write_text(f"{config.read_text()}\n[history]\nentries = 100\n")
    own_commands.output("call", SESSIONS[0], "get")
    status = own_commands.shared.status()
    assert status is not None
    run_commands(own_commands, WARM)
    before = memory_of(status["pid"])
    run_commands(own_commands, ALL - WARM)
    growth = memory_of(status["pid"]) - before
    assert clients(own_commands) == 0
    assert growth <= BYTES_PER_COMMAND * (ALL - WARM), (
        f"{growth / (ALL - WARM):.0f} bytes a command"
    )
