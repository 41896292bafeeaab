"""The machine and the software versions of a run."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from .plan import ROOT

RESULTS = (":!benchmarks/runs", ":!docs", ":!README.md")
PACKAGES = (
    "statehold",
    "mcp",
    "anyio",
    "uvloop",
    "uvicorn",
    "starlette",
    "orjson",
    "sqlalchemy",
    "aiosqlite",
    "fastmcp",
)

QUIET_CORES = 0.1
"""The most cores that other programs may use before and after a run."""
WINDOW_SECONDS = 5.0


def describe() -> dict[str, Any]:
    """Return the machine and the versions of the measured programs."""
    return {
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_mib": psutil.virtual_memory().total >> 20,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {
            name: installed_version for name in PACKAGES if (installed_version := _version(name))
        },
    }


def commit() -> str | None:
    """Return the commit of the sources, with a + if files were changed since, None where there is no git history."""
    git = shutil.which("git")
    if git is None:
        return None
    # The runs and their pages are results: a series of runs writes some of them while it goes on.
    changed = ("status", "--porcelain", "--untracked-files=no", "--", ".", *RESULTS)
    head, status = (
        subprocess.run([git, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        for arguments in (("rev-parse", "--short=12", "HEAD"), changed)
    )
    return head.stdout.strip() + ("+" if status.stdout else "") if head.returncode == 0 else None


def wait_until_quiet(seconds: float, window: float = WINDOW_SECONDS) -> float:
    """Wait until other programs use less than QUIET_CORES, for some seconds at most; return the cores that they use.

    A load average has the last minutes in it, mostly those of the previous run; this is the present.
    """
    ends = time.monotonic() + seconds
    while True:
        cores = _busy_cores(window)
        if cores < QUIET_CORES or time.monotonic() + window > ends:
            return cores


def _busy_cores(seconds: float) -> float:
    """Return the mean number of cores in use over some seconds, in which this process only sleeps."""
    before = psutil.cpu_times()
    time.sleep(seconds)
    after = psutil.cpu_times()
    # A hypervisor takes time that is neither idle nor a wait for a disk, so that time counts as busy.
    idle = sum(
        getattr(after, kind, 0.0) - getattr(before, kind, 0.0) for kind in ("idle", "iowait")
    )
    return round(max(0.0, (os.cpu_count() or 1) - idle / seconds), 2)


def load() -> list[float]:
    """Return the load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _processor() -> str:
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
