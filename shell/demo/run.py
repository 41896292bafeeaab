"""`statehold demo`: a tour of one minute over a real server, which kills and restarts real processes.

Everything lives in a temporary folder. Every end of the tour, Ctrl-C included, removes all its processes and files.
"""

from __future__ import annotations

import signal

import anyio
from anyio.abc import TaskStatus

from ...server.exit_codes import FAILURE, INTERRUPTED, OK
from ...server.printing import complain, write_error
from .process import DemoFailed
from .tour import Tour


def demo() -> int:
    """Run the tour and return the exit code: 0, 1 after a failed step, which is named, or 130 when interrupted."""
    outcome: list[int] = []
    anyio.run(_demo, outcome)
    return outcome[0] if outcome else INTERRUPTED


async def _demo(outcome: list[int]) -> None:
    failure: DemoFailed | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_until_signal, tasks.cancel_scope)
        try:
            async with Tour() as tour:
                await tour.run()
            outcome.append(OK)
        except DemoFailed as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        outcome.append(complain(f"demo: {failure}", FAILURE))


async def _until_signal(
    scope: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """End the tour on Ctrl-C and on SIGTERM; its cleanup runs as always."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            write_error("\ninterrupted; cleaning up\n")
            scope.cancel()
            return
