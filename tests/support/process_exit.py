"""Waiting for the end of processes that are not our children: children of children, and those that a killed parent left."""

from __future__ import annotations

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
