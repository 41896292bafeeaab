"""The start of the process that replaces this server, when a signal asks for it."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

logger = logging.getLogger("statehold.server")

NOT_REPLACEABLE: Final = "SIGUSR2: this server cannot be replaced; see statehold serve --replace"


async def start_on_signal(
    port: int, *, is_replaceable: bool, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Start a successor with each SIGUSR2: this program with the same arguments, for the same port. Until cancelled.

    While one is starting, further signals are ignored. A successor that cannot serve writes why, and this server goes on.
    """
    if sys.platform == "win32":
        task_status.started()
        return
    process: subprocess.Popen[bytes] | None = None
    with anyio.open_signal_receiver(signal.SIGUSR2) as signals:
        task_status.started()
        async for _ in signals:
            if not is_replaceable:
                logger.error(NOT_REPLACEABLE)
            elif process is None or process.poll() is not None:
                process = await _start(port)


async def _start(port: int) -> subprocess.Popen[bytes] | None:
    # Both options may be there already: the last port counts.
    command = [sys.executable, *sys.orig_argv[1:], "--replace", "--port", str(port)]
    try:
        process = await anyio.to_thread.run_sync(subprocess.Popen[bytes], command)
    except OSError as error:
        logger.error("the successor cannot be started: %s", error.strerror)
        return None
    logger.info("the successor starts: pid %d", process.pid)
    return process


__all__ = ["NOT_REPLACEABLE", "start_on_signal"]
