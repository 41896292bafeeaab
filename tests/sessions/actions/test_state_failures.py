"""Updates of a state when the store fails, and many at once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.engine import Build, failing

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


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "cancelled"])
async def test_who_compares_with_a_state_on_its_way_waits_for_what_becomes_of_it(
    build: Build, monkeypatch: pytest.MonkeyPatch, fails: bool, leaves: bool
):
    """A conflict with an unreadable version would repeat without end, or would be reported for nothing."""
    async with build() as engine:
        session = await engine.create()
        states, asked, may = engine.registry.states, anyio.Event(), anyio.Event()
        real, told = engine.store.write, list[object]()

        async def write(*args: Any, **kwargs: Any) -> object:
            asked.set()
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
                told.append(newer.value)
            except StateConflict as error:
                told.append(str(error))

        monkeypatch.setattr(engine.store, "write", write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(update, "a")
            await asked.wait()
            async with anyio.create_task_group() as leaving:
                if leaves:
                    leaving.start_soon(update, "c")
                await anyio.lowlevel.checkpoint()
                tasks.start_soon(compare)
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                leaving.cancel_scope.cancel()
            assert not told
            may.set()
        version = 2 if leaves else 1
        assert told == [{"b": 1} if fails else f"The state is at version {version}, not 0."]


async def test_a_thousand_updates_at_once_are_all_applied(build: Build, tmp_path: Path):
    async with build(folder=tmp_path) as engine:
        session = await engine.create()
        async with anyio.create_task_group() as tasks:
            for n in range(1000):
                tasks.start_soon(engine.registry.states.update, LOCAL, session.id, {f"k{n}": n})
        stored = await engine.store.state(session.id)
        assert stored is not None
        assert stored.version == 1000
        assert stored.value == {f"k{n}": n for n in range(1000)}
