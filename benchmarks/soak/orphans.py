"""Processes that their parents left behind: on Linux they become children of the soak, so that none escapes the count."""

from __future__ import annotations

import ctypes
import sys

import psutil

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Have every descendant whose parent ends become a child of this process; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def living(pid: int | None = None) -> list[psutil.Process]:
    """Return all descendants of a process, this one by default, that have not ended."""
    processes: list[psutil.Process] = []
    try:
        for process in psutil.Process(pid).children(recursive=True):
            try:
                if process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
            except psutil.NoSuchProcess:
                continue
    except psutil.NoSuchProcess:
        pass
    return processes


def command_of(process: psutil.Process) -> str:
    """Return the command line of a process, empty when it ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return ""
