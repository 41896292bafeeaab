"""The state of sessions of a registry: reading, changing, conflicts, many at once, whatever the session's status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.engine import Build

from statehold.sessions.errors import (
    SessionNotFound,
    StateConflict,
    StateInvalid,
)
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.state.patch import LIMIT


async def test_updates_that_are_small_each_do_not_grow_a_state_beyond_its_limit(
    build: Build,
) -> None:
    async with build() as engine:
        states, session = engine.registry.states, await engine.create()
        await states.update(LOCAL, session.id, {"first": "x" * (LIMIT * 2 // 3)})
        with pytest.raises(StateInvalid):
            await states.update(LOCAL, session.id, {"second": "x" * (LIMIT * 2 // 3)})
        state = await states.read(LOCAL, session.id)
        assert (list(state.value), state.version) == (["first"], 1)


async def test_a_thousand_updates_at_once_are_all_applied(build: Build, tmp_path: Path) -> None:
    """The version is 1,000, each update is applied and durable, and all take less than five seconds."""
    async with build(folder=tmp_path) as engine:
        session = await engine.create()
        versions: list[int] = []

        async def update(number: int) -> None:
            values = {f"key {number}": number}
            versions.append(
                (await engine.registry.states.update(LOCAL, session.id, values)).version
            )

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(1000):
                    tasks.start_soon(update, number)
        assert sorted(versions) == list(range(1, 1001))
        stored = await engine.store.state(session.id)
        assert stored is not None
        assert stored.version == 1000
        assert stored.value == {f"key {number}": number for number in range(1000)}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("writers", "each"), [(20, 5), pytest.param(1000, 1, marks=pytest.mark.load)]
)
async def test_a_thousand_increments_with_compare_and_set_add_up(
    build: Build, writers: int, each: int
) -> None:
    """One of two writers of the same version wins; with retries the sum is exact."""
    async with build() as engine:
        session = await engine.create(state={"n": 0})
        states, conflicts = engine.registry.states, 0

        async def increment() -> None:
            nonlocal conflicts
            while True:
                current = await states.read(LOCAL, session.id, "/n")
                try:
                    await states.update(
                        LOCAL, session.id, current.value + 1, path="/n", if_version=current.version
                    )
                    return
                except StateConflict:
                    conflicts += 1

        async def several() -> None:
            for _ in range(each):
                await increment()

        with anyio.fail_after(240):
            async with anyio.create_task_group() as tasks:
                # One of them wins in each round: of a thousand at once, half a million lose.
                for _ in range(writers):
                    tasks.start_soon(several)
        state = await states.read(LOCAL, session.id)
        assert (state.value, state.version) == ({"n": writers * each}, writers * each)
        assert conflicts > writers


async def test_reading_is_no_use_and_wakes_nothing(build: Build) -> None:
    async with build() as engine:
        session = await engine.create(state={"n": 1})
        used = (await engine.registry.info(LOCAL, session.id))["used_at"]
        engine.clock.advance(10)
        assert (await engine.registry.states.read(LOCAL, session.id, "/n")).value == 1
        assert (await engine.registry.info(LOCAL, session.id))["used_at"] == used
        await engine.registry.pause(LOCAL, session.id)
        held = engine.registry.statistics()["owned"]
        assert (await engine.registry.states.read(LOCAL, session.id, "/n")).value == 1
        assert await engine.status(session.id) == "paused"
        assert engine.registry.statistics()["owned"] == held == 0


async def test_a_paused_state_is_changed_although_only_a_request_ends_pauses(
    build: Build,
) -> None:
    async with build(policy=Policy(auto_resume=False)) as engine:
        session = await engine.create()
        await engine.registry.pause(LOCAL, session.id)
        for number in range(3):
            await engine.registry.states.update(LOCAL, session.id, {"n": number})
        assert await engine.status(session.id) == "paused"
        assert engine.registry.statistics()["owned"] == 0
        state = await engine.registry.states.read(LOCAL, session.id)
        assert (state.value, state.version) == ({"n": 2}, 3)


async def test_sessions_of_many_principals_do_not_see_each_other(build: Build) -> None:
    """Two principals have a hundred sessions each, and all are written to at once."""
    async with build() as engine:
        owners = [Principal(subject=name) for name in ("one", "two")]
        sessions = {owner.key: [await engine.create(owner) for _ in range(100)] for owner in owners}
        states = engine.registry.states
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                for owner in owners:
                    wanted = {"of": owner.subject, "n": number}
                    tasks.start_soon(states.update, owner, sessions[owner.key][number].id, wanted)
        for owner, other in (owners, owners[::-1]):
            for number, session in enumerate(sessions[owner.key]):
                state = await states.read(owner, session.id)
                assert state.value == {"of": owner.subject, "n": number}
                with pytest.raises(SessionNotFound):
                    await states.read(other, session.id)


async def test_a_state_over_the_limit_is_refused_and_the_old_one_stays(build: Build) -> None:
    async with build() as engine:
        session = await engine.create(state={"n": 1})
        with pytest.raises(StateInvalid, match=str(LIMIT)):
            await engine.registry.states.update(LOCAL, session.id, {"text": "x" * LIMIT})
        state = await engine.registry.states.read(LOCAL, session.id)
        assert (state.value, state.version) == ({"n": 1}, 0)
        with pytest.raises(StateInvalid):
            await engine.create(state={"text": "x" * LIMIT})


# Schemas.

CART: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "uniqueItems": True},
        "total": {"type": "number", "minimum": 0},
    },
    "$defs": {"item": {"type": "string", "pattern": "^[a-z]+$"}},
    "additionalProperties": False,
}


async def test_a_state_fits_its_schema_at_create_and_with_each_update(build: Build) -> None:
    """The error for a wrong type names its place."""
    async with build() as engine:
        states = engine.registry.states
        with pytest.raises(StateInvalid, match="/total"):
            await engine.create(state={"total": "much"}, state_schema=CART)
        session = await engine.create(state={"total": 1}, state_schema=CART)
        await states.update(LOCAL, session.id, "apple", path="/items/-", mode="replace")
        wrong: list[tuple[Any, str, str]] = [
            ("PEAR", "/items/-", "/items/1"),
            ("apple", "/items/-", "/items does not fit"),
            (-1, "/total", "/total"),
            ({"more": 1}, "", "The state does not fit.*'more'"),
        ]
        for values, path, text in wrong:
            with pytest.raises(StateInvalid, match=text):
                await states.update(LOCAL, session.id, values, path=path)
        # Also after it was stored and claimed again.
        await engine.registry.pause(LOCAL, session.id)
        with pytest.raises(StateInvalid, match="/total"):
            await states.update(LOCAL, session.id, -1, path="/total")
        state = await states.read(LOCAL, session.id)
        assert (state.value, state.version) == ({"total": 1, "items": ["apple"]}, 1)


async def test_updates_at_once_under_a_schema_are_all_applied(build: Build) -> None:
    schema = {"additionalProperties": {"type": ["string", "integer"]}}
    async with build() as engine:
        session = await engine.create(state={"text": "x" * 50_000}, state_schema=schema)

        async def update(number: int) -> None:
            await engine.registry.states.update(LOCAL, session.id, {f"key {number}": number})

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(update, number)
        state = await engine.registry.states.read(LOCAL, session.id)
        assert state.version == 50
        assert len(state.value) == 51
