"""The private names of aiosqlite that sessions/store/drivers.py uses."""

from __future__ import annotations

import threading
from typing import Any

import aiosqlite


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
