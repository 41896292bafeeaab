"""Runs one selection of the tests: `python3 .ci/tests.py REPORT SECONDS [pytest option ...]`.

A test that fails runs once more alone in a fresh process. If it passes then, its name goes to the file REPORT and the run
goes on; if it fails again, the run has failed. More than MOST failures are a fault of the code, and are not run again.
The exit code is 0, that of pytest, or 1 for a test that failed twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

MOST = 10
"""How many failed tests are run again."""
ALONE_SECONDS = 300
"""Seconds that one test may take alone."""
FAILED = Path(".pytest_cache/v/cache/lastfailed")
TIMED_OUT = 124


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


def failed() -> list[str]:
    """Return the names of the tests that failed in the last run, as pytest keeps them."""
    try:
        return sorted(json.loads(FAILED.read_text()))
    except FileNotFoundError:
        return []


def main(report: Path, seconds: float, options: list[str]) -> int:
    FAILED.unlink(missing_ok=True)
    status = run(seconds, *options)
    if status != 1:
        return status
    names = failed()
    if not 0 < len(names) <= MOST:
        print(f"gate: {len(names)} tests failed; up to {MOST} are run again", flush=True)
        return 1
    marked = [option for option in options if option not in ("-n0", "-q")]
    broken = [name for name in names if not passes_alone(name, marked)]
    with report.open("a") as file:
        file.writelines(f"{name}\n" for name in names if name not in broken)
    for name in broken:
        print(f"gate: failed twice: {name}", flush=True)
    return 1 if broken else 0


def passes_alone(name: str, options: list[str]) -> bool:
    print(f"\ngate: failed, runs once more alone: {name}", flush=True)
    return run(ALONE_SECONDS, "-n0", *options, name) == 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
