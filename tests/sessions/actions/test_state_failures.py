"""Updates of a state when the store fails, and many at once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.engine import Build, failing
from support.selection import matrix

from statehold.sessions.errors import (
    StateConflict,
    StoreUnavailable,
)
from statehold.sessions.records import LOCAL


async def test_updates_that_fail_together_leave_the_last_durable_state(build: Build):
    async with build() as engine:
        session = await engine.create(state={"v": 0})
        refused: list[str] = []

        async def update(key: str) -> None:
            with pytest.raises(StoreUnavailable):
                await engine.registry.states.update(LOCAL, session.id, {key: 1})
            refused.append(key)

        with failing(engine):
            async with anyio.create_task_group() as tasks:
                for key in ("a", "b", "c"):
                    tasks.start_soon(update, key)
        assert sorted(refused) == ["a", "b", "c"]
        state = await engine.registry.states.update(LOCAL, session.id, {"d": 1}, if_version=0)
        assert (state.version, state.value) == (1, {"v": 0, "d": 1})


@pytest.mark.parametrize("fails", matrix(True, False))
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "cancelled"])
async def test_a_comparison_waits_for_the_outcome_of_an_earlier_update(
    build: Build, monkeypatch: pytest.MonkeyPatch, fails: bool, leaves: bool
):
    """A conflict with an unreadable version would repeat without end, or would be reported for nothing."""
    async with build() as engine:
        session = await engine.create()
        states, requested, may = engine.registry.states, anyio.Event(), anyio.Event()
        real, outcomes = engine.store.write, list[object]()

        async def write(*args: Any, **kwargs: Any) -> object:
            requested.set()
            await may.wait()
            if fails:
                monkeypatch.undo()
                raise StoreUnavailable("The disk is full.")
            return await real(*args, **kwargs)

        async def update(key: str) -> None:
            with suppress(StoreUnavailable):
                await states.update(LOCAL, session.id, {key: 1})

        async def compare() -> None:
            try:
                newer = await states.update(LOCAL, session.id, {"b": 1}, if_version=0)
                outcomes.append(newer.value)
            except StateConflict as error:
                outcomes.append(str(error))

        monkeypatch.setattr(engine.store, "write", write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(update, "a")
            await requested.wait()
            async with anyio.create_task_group() as leaving:
                if leaves:
                    leaving.start_soon(update, "c")
                await anyio.lowlevel.checkpoint()
                tasks.start_soon(compare)
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                leaving.cancel_scope.cancel()
            assert not outcomes
            may.set()
        version = 2 if leaves else 1
        assert outcomes == [{"b": 1} if fails else f"The state is at version {version}, not 0."]
