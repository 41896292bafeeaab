"""Idle sessions that give way to others, over the real registry."""

from __future__ import annotations

import logging

import anyio
import pytest
from support.counting import Counting, refuse
from support.engine import Build, Engine
from support.loop_clock import LoopClock

from statehold.sessions.errors import (
    SessionLimit,
)
from statehold.sessions.live.session import LiveSession, logged_session
from statehold.sessions.policy import Policy
from statehold.sessions.records import Principal
from statehold.sessions.services import PausePolicy
from statehold.sessions.transitions.eviction import NOTICE_SECONDS

ANN = Principal(subject="ann")
BOB = Principal(subject="bob")
CAROL = Principal(subject="carol")


QUEUE_SECONDS = 60.0


async def refuse_place(
    engine: Engine, loop_clock: LoopClock, session: str, principal: Principal
) -> None:
    """Call in a session that gets no place in time."""

    async def call() -> None:
        with pytest.raises(SessionLimit):
            await engine.count(session, principal=principal)

    budget = engine.registry.core.budget
    with anyio.fail_after(10 * QUEUE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await engine.until(lambda: budget.statistics().waiting == 1)
            await loop_clock.by(QUEUE_SECONDS)


async def test_the_least_recently_used_idle_session_gives_way(build: Build):
    async with build(Counting(pause="snapshot"), policy=Policy(live_sessions=2)) as engine:
        a, b, c = [await engine.create() for _ in range(3)]
        await engine.count(a.id)
        await engine.count(b.id)
        await engine.count(a.id)
        assert await engine.count(c.id) == 1
        assert await engine.status(b.id) == "paused"
        assert await engine.status(a.id) == "idle"
        assert await engine.count(b.id) == 2


async def test_the_log_of_a_session_that_gives_way_does_not_name_that_of_the_call(
    build: Build, caplog: pytest.LogCaptureFixture
):
    named: dict[str, LiveSession | None] = {}

    def note_session(record: logging.LogRecord) -> bool:
        named[record.getMessage()] = logged_session.get()
        return True

    caplog.set_level(logging.DEBUG, "statehold.sessions")
    caplog.handler.addFilter(note_session)
    async with build(Counting(pause="snapshot"), policy=Policy(live_sessions=1)) as engine:
        a, b = await engine.create(), await engine.create()
        await engine.count(a.id)
        engine.counter.live[0].snapshot = refuse
        await engine.count(b.id)
    [of_a] = [session for message, session in named.items() if "not saved" in message]
    assert of_a is not b


@pytest.mark.parametrize("saves", [False, True])
async def test_an_idle_session_of_another_that_cannot_be_saved_stays(
    build: Build, loop_clock: LoopClock, saves: bool
):
    """Whether its service never saves, or fails to."""
    policy = Policy(live_sessions=1, queue_seconds=QUEUE_SECONDS)
    async with build(Counting(pause="snapshot" if saves else "keep"), policy=policy) as engine:
        of_ann, of_bob = await engine.create(ANN), await engine.create(BOB)
        assert await engine.count(of_ann.id, principal=ANN) == 1
        if saves:
            engine.counter.live[0].snapshot = refuse
        await refuse_place(engine, loop_clock, of_bob.id, BOB)
        assert of_ann.status == "idle"
        assert await engine.count(of_ann.id, principal=ANN) == 2
        another = await engine.create(ANN)
        assert await engine.count(another.id, principal=ANN) == 1
        assert await engine.status(of_ann.id, ANN) == "paused"


async def test_an_idle_session_of_another_that_is_saved_gives_way(build: Build):
    async with build(Counting(pause="snapshot"), policy=Policy(live_sessions=1)) as engine:
        of_ann, of_bob = await engine.create(ANN), await engine.create(BOB)
        assert await engine.count(of_ann.id, principal=ANN) == 1
        assert await engine.count(of_bob.id, principal=BOB) == 1
        assert await engine.count(of_ann.id, principal=ANN) == 2


async def test_with_everybody_busy_a_call_waits_and_then_gets_the_limit(build: Build):
    policy = Policy(live_sessions=1, queue=1, queue_seconds=0.5)
    async with build(policy=policy) as engine:
        busy, other = await engine.create(), await engine.create()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.call, busy.id, "hold")
            await engine.counter.holding.wait()
            with pytest.raises(SessionLimit) as caught:
                await engine.call(other.id)
            assert caught.value.retry_after is not None
            assert busy.status == "active"
            engine.counter.let_go.set()
        assert await engine.count(other.id) == 1


async def test_a_quota_limits_the_sessions_of_one_principal_only(build: Build):
    async with build(policy=Policy(sessions_per_principal=2)) as engine:
        await engine.create(ANN)
        second = await engine.create(ANN)
        with pytest.raises(SessionLimit):
            await engine.create(ANN)
        await engine.create(BOB)
        await engine.registry.close(ANN, second.id)
        await engine.create(ANN)


async def test_a_session_that_cannot_be_saved_gives_way_after_a_time_if_its_owner_has_more_than_a_share(
    build: Build, loop_clock: LoopClock
):
    policy = Policy(live_sessions=4, queue_seconds=QUEUE_SECONDS, shared=True)
    async with build(policy=policy) as engine:
        of_ann = [await engine.create(ANN) for _ in range(3)]
        for session in of_ann:
            await engine.count(session.id, principal=ANN)
        others = [await engine.create(principal) for principal in (BOB, CAROL)]
        await engine.count(others[0].id, principal=BOB)
        await refuse_place(engine, loop_clock, others[1].id, CAROL)
        engine.clock.advance(NOTICE_SECONDS)
        assert await engine.count(others[1].id, principal=CAROL) == 1
        states = [await engine.status(session.id, ANN) for session in of_ann]
        assert sorted(states) == ["idle", "idle", "paused"]


async def test_a_newcomer_gets_a_place_when_a_session_has_been_idle_long_enough_meanwhile(
    build: Build,
):
    async with build(policy=Policy(live_sessions=4, shared=True)) as engine:
        of_ann = [await engine.create(ANN) for _ in range(3)]
        for session in of_ann:
            await engine.count(session.id, principal=ANN)
        of_bob, of_carol = await engine.create(BOB), await engine.create(CAROL)
        await engine.count(of_bob.id, principal=BOB)
        budget, counts = engine.registry.core.budget, list[int]()

        async def newcomer() -> None:
            counts.append(await engine.count(of_carol.id, principal=CAROL))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(newcomer)
                await engine.until(lambda: budget.statistics().waiting == 1)
                engine.clock.advance(NOTICE_SECONDS)
        assert counts == [1]
        states = [await engine.status(session.id, ANN) for session in of_ann]
        assert sorted(states) == ["idle", "idle", "paused"]


async def test_a_newcomer_waits_no_longer_than_its_queue_for_places_that_idle_sessions_fill(
    build: Build,
):
    """The notice of sessions that cannot be saved is shorter than the wait while another principal waits."""
    policy = Policy(live_sessions=4, queue_seconds=30.0, shared=True)
    async with build(policy=policy) as engine:
        of_ann = [await engine.create(ANN) for _ in range(3)]
        for session in of_ann:
            await engine.count(session.id, principal=ANN)
        of_bob, of_carol = await engine.create(BOB), await engine.create(CAROL)
        await engine.count(of_bob.id, principal=BOB)
        engine.clock.advance(NOTICE_SECONDS * 2)
        await engine.until(lambda: True)
        # Without a wait no session loses anything.
        assert {await engine.status(session.id, ANN) for session in of_ann} == {"idle"}
        await engine.count(of_ann[0].id, principal=ANN)
        engine.clock.advance(policy.queue_seconds / 2)
        with anyio.fail_after(5):
            assert await engine.count(of_carol.id, principal=CAROL) == 1


@pytest.mark.parametrize("pause", ["snapshot", "keep"])
async def test_idle_sessions_that_can_be_saved_refill_the_reserve(build: Build, pause: PausePolicy):
    policy = Policy(live_sessions=10, shared=True)
    async with build(Counting(pause=pause), policy=policy) as engine:
        of_ann = [await engine.create(ANN) for _ in range(6)]
        for session in of_ann:
            await engine.count(session.id, principal=ANN)
        budget = engine.registry.core.budget
        for number in range(4):
            newcomer = Principal(subject=f"newcomer {number}")
            of_newcomer = await engine.create(newcomer)
            await engine.count(of_newcomer.id, principal=newcomer)
        assert budget.statistics().used == 10
        engine.clock.advance(NOTICE_SECONDS)
        if pause == "snapshot":
            await engine.until(lambda: budget.statistics().used == 9)
            assert await engine.status(of_ann[0].id, ANN) == "paused"
        else:
            await engine.registry.info(ANN, of_ann[0].id)
            assert budget.statistics().used == 10
