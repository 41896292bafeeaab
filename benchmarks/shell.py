"""(r) call: one command that calls a tool of a session, in turns with an empty Python, beside the commands of others."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from .browser.bare import shell
from .gateways import statehold, statehold_config
from .plan import COUNTER, Plan, python
from .report import Row, Table, Target
from .samples import median, quantile, undisturbed

WALL_MS, CPU_MS = 60.0, 35.0
"""The most that a call of a quick tool may take more than an empty Python."""
FIRST_SECONDS = 4.0
COMPLETE_MS, QUICK_MS = 80.0, 250.0
"""The most that a completion, and a command that shows something, may take."""
QUICK = (
    ("sessions", "list"),
    ("sessions", "show", "work"),
    ("status",),
    ("--help",),
    ("--version",),
)
"""Commands that show something."""
EMPTY = [sys.executable, "-I", "-S", "-c", "pass"]
BROWSER = """
[services.browser]
type = "browser"
executable = "{shell}"
"""


@dataclass(slots=True)
class Samples:
    """The times of one command: its wall time and its CPU time with its children, in ms."""

    wall: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])


async def measure(plan: Plan) -> Table:
    table = Table("(r) call: a command that calls a tool, in ms; more than an empty Python")
    folder = plan.folder / "call"
    config = statehold_config(folder, COUNTER)
    config.write_text(config.read_text("utf-8") + BROWSER.format(shell=shell()), "utf-8")
    command = statehold(folder / "data", config)
    try:
        began = time.perf_counter()
        _run([*command, "call", "work", "inc"])
        first = time.perf_counter() - began
        _run([*command, "call", "work", "browser_navigate", "url=about:blank"])
        # A command that names no configuration takes the server as it is.
        bare = [*_console_script(), "--data", str(folder / "data")]
        commands = {
            "empty python": EMPTY,
            "statehold call, counter": [*bare, "call", "work", "inc"],
            "statehold call, browser": [*bare, "call", "work", "browser_snapshot"],
            "statehold complete": [*bare, "complete", "--", "call", "work", "inc", ""],
            **{f"statehold {' '.join(words)}": [*bare, *words] for words in QUICK},
        }
        with _peers(folder, table) as peers:
            found = _in_turns({**commands, **peers}, plan.commands)
    finally:
        _run([*command, "stop"])
    empty = found["empty python"]
    table.rows = [_row(name, samples, empty) for name, samples in found.items()]
    table.notes.append(f"the first call, which starts the server: {first:.1f} s")
    table.targets = list(_targets(found, first))
    return table


def _targets(found: dict[str, Samples], first: float) -> Generator[Target]:
    empty, call = found["empty python"], found["statehold call, counter"]
    wall = median(call.wall) - median(empty.wall)
    yield Target("call: wall time more than an empty Python", wall, WALL_MS, "ms")
    cpu = median(call.cpu) - median(empty.cpu)
    yield Target("call: CPU more than an empty Python", cpu, CPU_MS, "ms")
    yield Target("call: the first, which starts the server", first, FIRST_SECONDS, "s")
    complete = median(found["statehold complete"].wall)
    yield Target("call: a completion", complete, COMPLETE_MS, "ms")
    quick = max(median(found[f"statehold {' '.join(words)}"].wall) for words in QUICK)
    yield Target("call: the slowest command that shows something", quick, QUICK_MS, "ms")


def _row(name: str, samples: Samples, empty: Samples) -> Row:
    return {
        "command": name,
        "p10": quantile(samples.wall, 0.1),
        "p50": median(samples.wall),
        "p99": quantile(samples.wall, 0.99),
        "more": median(samples.wall) - median(empty.wall),
        "CPU": median(samples.cpu),
        "more CPU": median(samples.cpu) - median(empty.cpu),
    }


def _in_turns(commands: dict[str, list[str]], rounds: int) -> dict[str, Samples]:
    found = {name: Samples() for name in commands}
    with undisturbed():
        for _ in range(rounds):
            for name, command in commands.items():
                wall, cpu = _timed(command)
                found[name].wall.append(wall)
                found[name].cpu.append(cpu)
    return found


def _timed(command: list[str]) -> tuple[float, float]:
    """Run a command; return its wall time and its CPU time with its children, in ms."""
    before = _children_seconds()
    began = time.perf_counter()
    _run(command)
    wall = time.perf_counter() - began
    return wall * 1e3, (_children_seconds() - before) * 1e3


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _console_script() -> list[str]:
    """Return the program as it is installed beside this Python."""
    program = Path(sys.executable).with_name("statehold")
    return [str(program)] if program.exists() else python("-m", "statehold")


@contextmanager
def _peers(folder: Path, table: Table) -> Generator[dict[str, list[str]]]:
    """Start what the commands of others need; yield those that are installed."""
    peers: dict[str, list[str]] = {}
    before = {process.pid for process in psutil.process_iter()}
    playwright, mcpc = shutil.which("playwright-cli"), shutil.which("mcpc")
    try:
        if playwright is None:
            table.notes.append("left out: playwright-cli is not installed (npm @playwright/cli)")
        else:
            _run([playwright, "open", "about:blank"])
            peers["playwright-cli, browser"] = [playwright, "snapshot"]
        if mcpc is None:
            table.notes.append("left out: mcpc is not installed (npm @apify/mcpc)")
        else:
            config = folder / "mcpc.json"
            counter = f'{{"command": "{sys.executable}", "args": ["{COUNTER}"]}}'
            config.write_text(f'{{"mcpServers": {{"counter": {counter}}}}}', "utf-8")
            _run([mcpc, "connect", f"{config}:counter", "@bench"])
            peers["mcpc, counter"] = [mcpc, "@bench", "tools-call", "get"]
        yield peers
    finally:
        if playwright is not None:
            subprocess.run([playwright, "close"], stdout=subprocess.DEVNULL, check=False)
        if mcpc is not None:
            subprocess.run([mcpc, "close", "@bench"], stdout=subprocess.DEVNULL, check=False)
        for process in psutil.process_iter(["cmdline"]):
            words = " ".join(process.info["cmdline"] or [])
            if process.pid not in before and ("mcpc" in words or "playwright-cli" in words):
                process.terminate()
