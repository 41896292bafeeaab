"""Record every part in benchmarks/runs: each in a fresh process, when the machine is quiet."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import machine
from .parts import PARTS
from .plan import ROOT, python

FOLDER = Path(__file__).resolve().parent / "runs"
SIZES = {
    "agent": ("--routes", "statehold,peer"),
    "keeper": ("--kills", "100"),
    "peers": ("--rounds", "4"),
}
"""Options of parts that take longer at their defaults than their figures need."""
TESTS = ("soak", "chaos", "console-soak")
TEST_MINUTES = 3.0
PART_SECONDS = 1800.0
"""The longest that a part may take besides its minutes; then it is stopped and the next one begins."""


def record_all(minutes: float | None = None, folder: Path = FOLDER) -> int:
    """Record the parts that have no quiet run of this commit and day. Return 1 if one of them could not be recorded.

    `minutes` is the duration of each of the tests.
    """
    commit = machine.commit()
    print(f"commit: {commit}")
    failed: list[str] = []
    for part in PARTS:
        file = folder / f"{part}.json"
        if is_recorded(file, commit):
            print(f"{part}: recorded already")
            continue
        written_before = _modified(file)
        seconds = _run(part, file, TEST_MINUTES if minutes is None else minutes)
        if _modified(file) == written_before:
            failed.append(part)
        print(f"\n{part}: {seconds:.0f} s{', not recorded' if part in failed else ''}", flush=True)
    print("not recorded: " + ", ".join(failed) if failed else "all parts are recorded")
    return 1 if failed else 0


def is_recorded(file: Path, commit: str | None) -> bool:
    """Return whether a file has a run of this commit and of today, on a quiet machine."""
    if not file.exists():
        return False
    about: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["about"]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    is_current = about.get("commit") == commit and about.get("taken_at", "").startswith(today)
    return is_current and about.get("quiet", False)


def command_of(part: str, file: Path, minutes: float) -> Sequence[str]:
    sizes = ("--minutes", f"{minutes:g}") if part in TESTS else SIZES.get(part, ())
    return python("-m", "benchmarks", part, *sizes, "--when-quiet", "--json", file)


def _run(part: str, file: Path, minutes: float) -> float:
    """Run a part, and return the seconds that it took. Its exit code says whether it met its targets."""
    began = time.monotonic()
    process = subprocess.Popen(command_of(part, file, minutes), cwd=ROOT)
    try:
        process.wait(PART_SECONDS + 60 * minutes)
    except subprocess.TimeoutExpired:
        print(f"{part} takes too long and is stopped")
    finally:
        if process.poll() is None:
            # It ends the processes that it started.
            process.terminate()
            process.wait()
    return time.monotonic() - began


def _modified(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


__all__ = ["command_of", "is_recorded", "record_all"]
