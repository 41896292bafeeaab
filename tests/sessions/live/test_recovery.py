"""Lost connections and the recovery of their sessions."""

from __future__ import annotations

import anyio
import pytest
from checkpointed import counted, saving, settled
from house import Build

from statehold.sessions.errors import (
    OutcomeUnknown,
    ServiceUnavailable,
    SessionBusy,
    SessionError,
)
from statehold.sessions.records import LOCAL, Principal

ANN = Principal(subject="ann")
BOB = Principal(subject="bob")


async def test_a_connection_that_dies_in_a_call_is_said_once_and_recovered(build: Build):
    async with build() as house:
        session, other = await house.create(), await house.create()
        await house.count(session.id)
        await house.count(other.id)
        with pytest.raises(OutcomeUnknown) as caught:
            await house.call(session.id, "die")
        assert caught.value.session_id == session.id
        await house.until(lambda: session.status == "error")
        await house.pass_time(lambda: session.status == "idle")
        answer = await house.call(session.id)
        assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
        assert answer.notice is not None
        assert await house.count(other.id) == 2


async def test_a_call_during_recovery_waits_for_it(build: Build):
    async with build() as house:
        session = await house.create()
        await house.count(session.id)
        house.counter.live[0].die("killed")
        await house.until(lambda: session.status == "error")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(house.call, session.id)
            await house.pass_time(lambda: session.status == "active" or session.status == "idle")
        assert session.generation == 2


async def test_a_session_that_is_being_recovered_says_so_to_who_wants_to_pause_it(build: Build):
    async with build() as house:
        session = await house.create()
        await house.count(session.id)
        house.counter.live[0].die("killed")
        await house.until(lambda: session.status == "error")
        with pytest.raises(SessionBusy, match="connecting again"):
            await house.registry.pause(LOCAL, session.id)
        await house.pass_time(lambda: session.status == "idle")
        await house.registry.pause(LOCAL, session.id)


async def test_a_session_that_cannot_be_recovered_is_closed(build: Build):
    async with build() as house:
        session = await house.create()
        await house.count(session.id)
        house.counter.refuse = 10
        house.counter.live[0].die("killed")
        await house.pass_time(lambda: session.status == "closed")
        assert house.counter.refuse == 7
        with pytest.raises(SessionError) as caught:
            await house.call(session.id)
        assert caught.value.code == "session_failed"


async def test_a_session_that_is_saved_outlives_that_it_cannot_be_recovered_for_a_while(
    build: Build,
):
    async with build(saving()) as house:
        session, _ = await counted(house)
        house.counter.refuse = 4
        house.counter.live[0].die("killed")
        await house.pass_time(lambda: house.counter.refuse == 1)
        await house.pass_time(lambda: session.status == "idle")
        with pytest.raises(ServiceUnavailable):
            await house.call(session.id)
        assert session.status == "idle"
        assert await house.count(session.id) == 2


async def test_a_saved_session_is_not_opened_over_and_over_when_it_ends_each_time(build: Build):
    async with build(saving()) as house:
        session, _ = await counted(house)
        for _ in range(5):
            await house.pass_time(lambda: bool(house.counter.live))
            house.counter.live[0].die("killed")
            await house.until(lambda: not house.counter.live)
        await house.pass_time(lambda: session.status == "idle")
        await settled(house, 60.0)
        assert not house.counter.live
        assert await house.count(session.id) == 2
