"""Puts sessions into a data folder, as a Statehold leaves them after an orderly end or a crash.

`python -m benchmarks.filling FOLDER COUNT paused|crashed` is a process of its own, because only the end of a process
makes a node dead.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import anyio

from statehold.sessions.ids import new_id
from statehold.sessions.lifecycle import Status
from statehold.sessions.node import Node
from statehold.sessions.records import (
    LOCAL,
    BindingRecord,
    BindingStatus,
    SessionRecord,
    StateRecord,
)
from statehold.sessions.store.sql import SQLStore

AT_ONCE = 500


async def fill(folder: Path, count: int, *, crashed: bool) -> None:
    """Store `count` sessions named s0, s1, ... of the local caller; `crashed` ends this process in the middle."""
    async with (
        SQLStore.sqlite(folder) as store,
        Node(store, folder, address="filling", clock=time.time) as node,
    ):
        for start in range(0, count, AT_ONCE):
            async with anyio.create_task_group() as tasks:
                for number in range(start, min(count, start + AT_ONCE)):
                    tasks.start_soon(_create, store, number, node.id if crashed else None)
        if crashed:
            await store.flush()
            os._exit(0)


async def _create(store: SQLStore, number: int, node: str | None) -> None:
    now = time.time()
    session = SessionRecord(
        id=new_id(),
        owner=LOCAL.key,
        name=f"s{number}",
        status=Status.PAUSED if node is None else Status.IDLE,
        created_at=now,
        used_at=now + number * 1e-6,
        status_at=now,
        due_at=now + 86_400,
        lifetime_ends_at=now + 604_800,
        node=node,
        services=["quick"],
    )
    binding = BindingRecord(
        session_id=session.id,
        service="quick",
        status=BindingStatus.PAUSED if node is None else BindingStatus.OPEN,
        generation=1,
        told_generation=1,
    )
    state = StateRecord(session_id=session.id, value={"number": number})
    await store.create(session, state, [binding], per_owner=0)


if __name__ == "__main__":
    anyio.run(lambda: fill(Path(sys.argv[1]), int(sys.argv[2]), crashed=sys.argv[3] == "crashed"))
