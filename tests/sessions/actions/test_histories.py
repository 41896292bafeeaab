"""Pages of journals that several callers read at once."""

from __future__ import annotations

import anyio
import pytest
from support.engine import Build
from support.waiting import until

from statehold.sessions.policy import Policy
from statehold.sessions.records import HistoryFilter, JournalRecord, Principal

ADA, BEN = Principal(subject="ada"), Principal(subject="ben")


async def test_many_readers_of_one_caller_leave_room_for_those_of_another(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build(policy=Policy(shared=True)) as engine:
        of_ada, of_ben = await engine.create(ADA), await engine.create(BEN)
        history, release, reading = engine.store.history, anyio.Event(), 0

        async def slow(session_id: str, wanted: HistoryFilter) -> list[JournalRecord]:
            nonlocal reading
            if session_id == of_ada.id:
                reading += 1
                await release.wait()
            return await history(session_id, wanted)

        monkeypatch.setattr(engine.store, "history", slow)
        page = engine.registry.history.page
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(page, ADA, of_ada.id, HistoryFilter())
            await until(lambda: reading)
            await anyio.wait_all_tasks_blocked()
            assert reading == 1
            with anyio.fail_after(10):
                record, _, _ = await page(BEN, of_ben.id, HistoryFilter())
            assert record.id == of_ben.id
            release.set()
        assert reading == 20
