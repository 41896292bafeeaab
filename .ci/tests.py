"""Runs one selection of the tests: `python3 .ci/tests.py NAME REPORT SECONDS [pytest option ...]`.

It prints the seconds of the selection and its ten slowest tests. A test that fails runs once more alone in a fresh process.
If it passes then, its name and the output of the first failure go to the file REPORT, and the run goes on; if it fails
again, the run has failed. More than MOST failures are a fault of the code, and are not run again.

With `--bound=N` the run fails when the selection takes more than N seconds, or as much more as the machine is slower than
the one of the bound: some starts of Python are timed around it.

The exit code is 0, that of pytest, or 1 for a test that failed twice and for a selection that took too long.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

MOST = 10
"""How many failed tests are run again."""
SLOWEST = 10
"""How many of the slowest tests are printed."""
ALONE_SECONDS = 300
"""Seconds that one test may take alone."""
OUTPUT_LINES = 60
"""Lines of the output of a failed test that are kept, from its end."""
STARTS = 5
"""How many starts of Python are timed."""
PROGRAM = "import asyncio, email, http.client, json, sqlite3, ssl, typing, xml.etree.ElementTree"
"""The program that is started: modules of the standard library, read as a test run reads its own."""
STARTS_SECONDS = 0.43
"""Seconds that they took on the machine of the bounds."""
TIMED_OUT = 124
NO_TESTS = 5
"""The exit code of pytest when it has not found a test."""
FAILED = Path(".pytest_cache/v/cache/lastfailed")


@dataclass(frozen=True)
class Case:
    """One test of a run, as the report of pytest describes it."""

    name: str
    seconds: float
    failure: str | None
    """The output of its failure; None when it passed or was skipped."""


def run(seconds: float, *options: str) -> int:
    """Return the exit code of `uv run pytest` with these options, or TIMED_OUT. Nothing of it is left running."""
    command = ["uv", "run", "pytest", *options]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"gate: pytest did not end within {seconds:g} seconds", flush=True)
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            return TIMED_OUT


def slowness() -> float:
    """Return how many times slower than the machine of the bounds this one is now, at least 1."""
    started = time.monotonic()
    for _ in range(STARTS):
        subprocess.run([sys.executable, "-c", PROGRAM], check=True)
    return max(1.0, (time.monotonic() - started) / STARTS_SECONDS)


def failed() -> list[str]:
    """Return the names of the tests that failed in the last run, as pytest stores them."""
    try:
        return sorted(json.loads(FAILED.read_text()))
    except FileNotFoundError:
        return []


def cases(report: Path) -> list[Case]:
    """Return the tests of a report; none when pytest ended before it wrote one."""
    if not report.exists() or not report.stat().st_size:
        return []
    elements = ET.parse(report).getroot().iter("testcase")
    return [
        Case(_node_id(element), float(element.get("time", 0)), _failure(element))
        for element in elements
    ]


def _node_id(element: ET.Element) -> str:
    """Return the name by which pytest runs a test again: its file, as `junit_family` xunit1 has it, and its function."""
    file, name = element.get("file") or element.get("classname", ""), element.get("name", "")
    module = file.removesuffix(".py").replace("/", ".")
    inner = (element.get("classname") or "").removeprefix(module).strip(".")
    return "::".join([file, *filter(None, inner.split(".")), name])


def _failure(element: ET.Element) -> str | None:
    for kind in ("failure", "error"):
        problem = element.find(kind)
        if problem is not None:
            lines = (problem.text or problem.get("message") or "").splitlines()
            return "\n".join(lines[-OUTPUT_LINES:])
    return None


def main(name: str, report: Path, seconds: float, options: list[str]) -> int:
    bounds = [
        option.removeprefix("--bound=") for option in options if option.startswith("--bound=")
    ]
    options = [option for option in options if not option.startswith("--bound=")]
    FAILED.unlink(missing_ok=True)
    before = slowness() if bounds else 1.0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        status = run(seconds, *options, f"--junitxml={results}", "-o", "junit_family=xunit1")
        tests = cases(results)
    took = time.monotonic() - started
    print(f"gate: {name}: {len(tests)} tests in {took:.0f} s; the slowest:", flush=True)
    for case in sorted(tests, key=lambda case: -case.seconds)[:SLOWEST]:
        print(f"gate: {case.seconds:7.1f} s  {case.name}", flush=True)
    if bounds and took > float(bounds[0]):
        bound = float(bounds[0]) * max(before, slowness())
        print(f"gate: {name} took {took:.0f} s; {bound:.0f} s are allowed here", flush=True)
        if took > bound:
            return status or 1
    if status != 1:
        return status
    failures = {case.name: case.failure for case in tests if case.failure is not None}
    return _run_again({name: failures.get(name) for name in failed()}, report, options)


def _run_again(failures: dict[str, str | None], report: Path, options: list[str]) -> int:
    if not 0 < len(failures) <= MOST:
        print(f"gate: {len(failures)} tests failed; up to {MOST} are run again", flush=True)
        return 1
    # A worker orders the parameters in a name in its own way.
    selection = options if "-n0" in options else [*options, "-n1"]
    broken = [name for name in failures if not _passes_alone(name, selection)]
    with report.open("a") as file:
        for name, output in failures.items():
            if name not in broken:
                file.write(f"{name}\n{output or 'see its output above'}\n\n")
    for name in broken:
        print(f"gate: failed twice: {name}", flush=True)
    return 1 if broken else 0


def _passes_alone(name: str, options: list[str]) -> bool:
    print(f"\ngate: failed, runs once more alone: {name}", flush=True)
    status = run(ALONE_SECONDS, *options, name)
    if status == NO_TESTS:
        # The other tests of a run may decide the order of the parameters in a name.
        status = run(ALONE_SECONDS, *options, name.partition("[")[0])
    return status == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]))
