"""Waiting for the end of processes that are not ours to wait for: children of children, and what a killed parent left."""

from __future__ import annotations

import os

import anyio
import psutil


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_gone(*pids: int, seconds: float = 10) -> None:
    """Wait until none of these processes runs; one whose parent has not asked for it yet does not.

    Raises:
        TimeoutError: one still runs after so many seconds.
    """
    with anyio.fail_after(seconds):
        for pid in pids:
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                await anyio.wait_readable(process)
            finally:
                os.close(process)
