"""The orderly end of a process that serves."""

from __future__ import annotations

import signal

import anyio
from anyio.abc import TaskStatus

from .exit_codes import FENCED, OK

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """The orderly end of a process: it refuses new calls, lets running ones finish, and pauses its sessions."""

    def __init__(self) -> None:
        self.begin_event = anyio.Event()
        self.force_event = anyio.Event()
        """Set by a second signal: do not wait for connections."""
        self.is_serving = False
        """Whether the process serves already. Before that, a signal cancels the start."""
        self.exit_code = OK

    def begin(self) -> None:
        self.begin_event.set()

    def begin_fenced(self) -> None:
        """End because other nodes have declared this one dead. The supervisor of the process starts it again."""
        self.exit_code = FENCED
        self.begin()

    def handle_signal(self) -> None:
        if self.begin_event.is_set():
            self.force_event.set()
        self.begin()


async def watch_signals(
    shutdown: Shutdown, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        task_status.started()
        async for _ in signals:
            shutdown.handle_signal()


async def cancel_start(shutdown: Shutdown, start: anyio.CancelScope) -> None:
    """Cancel the start when a signal comes before the process serves."""
    await shutdown.begin_event.wait()
    if not shutdown.is_serving:
        start.cancel()
