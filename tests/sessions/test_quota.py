"""What the sessions of one principal may take in the store, and what stays free on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import Build

from statehold.sessions.errors import SessionLimit
from statehold.sessions.policy import Policy
from statehold.sessions.quota import MEASURE_SECONDS
from statehold.sessions.records import Principal

ANN, BOB = Principal(subject="ann"), Principal(subject="bob")
LARGE = {"text": "x" * 100_000}


async def test_creating_and_closing_sessions_ends_at_the_budget_of_a_principal(build: Build):
    """Seen without: a caller wrote 559 MB in 20 seconds with states of 1 MB."""
    policy = Policy(stored_bytes_per_principal=1_000_000, retention=1000.0)
    async with build(policy=policy) as house:
        made: list[str] = []
        for _ in range(9):
            session = await house.create(ANN, state=LARGE)
            made.append(session.id)
            await house.registry.close(ANN, session.id)
        with pytest.raises(SessionLimit, match="closed ones included") as caught:
            await house.create(ANN, state=LARGE)
        assert caught.value.retry_after == MEASURE_SECONDS
        assert await house.store.usage(ANN.key) <= 1_000_000
        await house.create(BOB, state=LARGE)
        house.clock.advance(MEASURE_SECONDS)
        await house.store.purge(made[0])
        await house.create(ANN, state=LARGE)


async def test_a_state_may_not_grow_past_the_budget_and_calls_go_on(build: Build):
    async with build(policy=Policy(stored_bytes_per_principal=250_000)) as house:
        session = await house.create(ANN, state=LARGE)
        for _ in range(20):
            await house.registry.states.update(ANN, session.id, {"text": "y" * 100_000})
        with pytest.raises(SessionLimit):
            await house.registry.states.update(ANN, session.id, {"more": "y" * 200_000})
        state = await house.registry.states.read(ANN, session.id)
        assert "more" not in state.value
        assert await house.count(session.id, principal=ANN) == 1
        await house.registry.states.update(ANN, session.id, {"text": None})
        await house.registry.states.update(ANN, session.id, {"more": "y" * 200_000})


async def test_with_a_disk_nearly_full_nothing_new_is_stored_and_calls_go_on(
    build: Build, tmp_path: Path
):
    policy = Policy(free_disk_bytes=1 << 60)
    async with build(folder=tmp_path) as house:
        session = await house.create(ANN)
    async with build(folder=tmp_path, policy=policy) as house:
        with pytest.raises(SessionLimit, match="MiB left"):
            await house.create(ANN)
        with pytest.raises(SessionLimit, match="MiB left"):
            await house.registry.states.update(ANN, session.id, {"a": 1})
        assert await house.count(session.id, principal=ANN) == 1
