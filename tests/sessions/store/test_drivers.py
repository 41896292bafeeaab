"""Connections that a store keeps: the private names of aiosqlite that they use, and their cancelled start."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import aiosqlite
import anyio
import anyio.lowlevel
import pytest

from statehold.sessions.store.sql import SQLStore


async def test_work_runs_on_the_thread_of_the_connection() -> None:
    """Without `_thread` the thread is no daemon; without `_execute` each statement costs a change of threads."""
    connection: Any = aiosqlite.connect(":memory:")
    thread: threading.Thread = connection._thread
    thread.daemon = True
    await connection
    try:
        assert await connection._execute(threading.get_ident) == thread.ident
    finally:
        await connection.close()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("turns", range(8))
async def test_a_start_that_is_cancelled_ends(tmp_path: Path, turns: int) -> None:
    """A signal may end the process while its database opens."""
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

            tasks.start_soon(cancel)
            async with SQLStore.sqlite(tmp_path):
                await anyio.sleep_forever()
    assert scope.cancelled_caught
