"""Waiting for the end of threads, and of processes that are children of another process, or whose parent was killed."""

from __future__ import annotations

import threading
from collections.abc import Collection

import anyio
import psutil

from statehold.tools.processes import procfs


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_gone(*pids: int, seconds: float = 10) -> None:
    """Wait until none of these processes runs. A zombie counts as gone.

    Raises:
        TimeoutError: one still runs after so many seconds.
    """
    with anyio.fail_after(seconds):
        for pid in pids:
            assert await procfs.wait_for_exit(pid)


def join_threads(before: Collection[threading.Thread], *, seconds: float = 10) -> None:
    """Wait until all threads have ended that were started since, except the workers of anyio, which the loop keeps."""
    for thread in threading.enumerate():
        if thread not in before and not thread.name.startswith("AnyIO"):
            thread.join(seconds)
            assert not thread.is_alive(), thread
