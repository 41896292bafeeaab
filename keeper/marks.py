"""Finds and kills a child and its descendants by the mark in their environment. For the keeper and for nodes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Final

MARK: Final = "STATEHOLD_CHILD"
"""Environment variable that marks a child and all its descendants, with the value `<node>:<instance>-<number>`."""


def find_marked(is_ours: Callable[[str], bool]) -> list[int]:
    """Return the processes for whose mark `is_ours` is true. Blocks for some milliseconds; Linux only, else empty."""
    if sys.platform != "linux":
        return []
    return [
        int(entry)
        for entry in os.listdir("/proc")
        if entry.isdigit() and int(entry) != os.getpid() and _has_mark(int(entry), is_ours)
    ]


def _has_mark(pid: int, is_ours: Callable[[str], bool]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return False
    prefix = f"{MARK}=".encode()
    return any(
        is_ours(entry[len(prefix) :].decode("utf-8", "replace"))
        for entry in environment.split(b"\0")
        if entry.startswith(prefix)
    )


def kill_marked(
    marks: Iterable[str], select: Callable[[list[int]], Iterable[int]] = list
) -> list[int]:
    """Kill the processes that carry one of these marks and return their pids. Blocks like find_marked().

    `select` returns those of the found processes that are to be killed; by default all.
    """
    mark_set = frozenset(marks)
    killed_pids: list[int] = []
    # Repeated because one of them may start another meanwhile.
    for _ in range(3):
        found = select(find_marked(mark_set.__contains__))
        pids = [pid for pid in found if _kill_if_marked(pid, mark_set)]
        if not pids:
            break
        killed_pids += pids
    return sorted(set(killed_pids))


def _kill_if_marked(pid: int, marks: frozenset[str]) -> bool:
    try:
        # The pidfd ensures that the signal goes to the process whose mark was read.
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _has_mark(pid, marks.__contains__):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
