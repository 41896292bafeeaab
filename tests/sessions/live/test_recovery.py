"""Lost connections and the recovery of their sessions."""

from __future__ import annotations

import anyio
import pytest
from support.checkpoints import create_counted, saving, settle
from support.engine import Build

from statehold.sessions.errors import (
    OutcomeUnknown,
    ServiceUnavailable,
    SessionBusy,
    SessionError,
)
from statehold.sessions.records import LOCAL, Principal

ANN = Principal(subject="ann")
BOB = Principal(subject="bob")


async def test_a_connection_that_dies_in_a_call_is_reported_once_and_recovered(build: Build):
    async with build() as engine:
        session, other = await engine.create(), await engine.create()
        await engine.count(session.id)
        await engine.count(other.id)
        with pytest.raises(OutcomeUnknown) as caught:
            await engine.call(session.id, "die")
        assert caught.value.session_id == session.id
        await engine.until(lambda: session.status == "error")
        await engine.pass_time(lambda: session.status == "idle")
        answer = await engine.call(session.id)
        assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
        assert answer.notice is not None
        assert await engine.count(other.id) == 2


async def test_a_call_during_recovery_waits_for_it(build: Build):
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].die("killed")
        await engine.until(lambda: session.status == "error")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.call, session.id)
            await engine.pass_time(lambda: session.status == "active" or session.status == "idle")
        assert session.generation == 2


async def test_a_pause_during_a_recovery_is_refused_with_the_reason(build: Build):
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].die("killed")
        await engine.until(lambda: session.status == "error")
        with pytest.raises(SessionBusy, match="connecting again"):
            await engine.registry.pause(LOCAL, session.id)
        await engine.pass_time(lambda: session.status == "idle")
        await engine.registry.pause(LOCAL, session.id)


async def test_a_session_that_cannot_be_recovered_is_closed(build: Build):
    async with build() as engine:
        session = await engine.create(name="mine")
        await engine.count(session.id)
        engine.counter.refuse = 10
        engine.counter.live[0].die("killed")
        await engine.pass_time(lambda: session.status == "closed")
        assert engine.counter.refuse == 7
        for ref in (session.id, "mine"):
            with pytest.raises(SessionError) as caught:
                await engine.call(ref)
            assert caught.value.code == "session_failed"
            assert "error" in caught.value.message


async def test_a_session_that_is_saved_outlives_that_it_cannot_be_recovered_for_a_while(
    build: Build,
):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        engine.counter.refuse = 4
        engine.counter.live[0].die("killed")
        await engine.pass_time(lambda: engine.counter.refuse == 1)
        await engine.pass_time(lambda: session.status == "idle")
        with pytest.raises(ServiceUnavailable):
            await engine.call(session.id)
        assert session.status == "idle"
        assert await engine.count(session.id) == 2


async def test_a_saved_session_is_not_opened_over_and_over_when_it_ends_each_time(build: Build):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        for _ in range(5):
            await engine.pass_time(lambda: bool(engine.counter.live))
            engine.counter.live[0].die("killed")
            await engine.until(lambda: not engine.counter.live)
        await engine.pass_time(lambda: session.status == "idle")
        await settle(engine, 60.0)
        assert not engine.counter.live
        assert await engine.count(session.id) == 2
