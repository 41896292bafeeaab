"""The machine and the software versions of a run."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

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


def describe() -> dict[str, Any]:
    """Return the machine and the versions of the measured programs."""
    return {
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
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
