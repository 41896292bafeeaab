"""Connections that are in use though no call is in flight: nothing pauses them but the end of the process."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from counting import Counting
from house import Build

from statehold.sessions.errors import ServiceUnavailable, SessionBusy, SessionLimit
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.services import Snapshot


def saving(**options: float) -> Counting:
    return Counting(pause="snapshot", **options)  # pyright: ignore[reportArgumentType]


async def test_a_busy_connection_keeps_its_session_from_being_paused(build: Build):
    async with build(saving()) as house:
        session = await house.create(idle=60.0)
        await house.count(session.id)
        house.counter.live[0].busy = "a download is under way"
        house.clock.advance(61)
        await house.until(lambda: session.idle_since == house.clock.now())
        assert session.status == "idle"
        with pytest.raises(SessionBusy) as caught:
            await house.registry.pause(LOCAL, session.id)
        assert "counter: a download is under way" in caught.value.message
        house.counter.live[0].busy = None
        house.clock.advance(61)
        await house.until(lambda: session.status == "paused")


async def test_a_busy_session_is_not_closed_for_being_idle(build: Build):
    async with build(saving(), policy=Policy(on_idle="close")) as house:
        session = await house.create(idle=60.0)
        await house.count(session.id)
        house.counter.live[0].busy = "a trace is on"
        house.clock.advance(61)
        await house.until(lambda: session.idle_since == house.clock.now())
        assert session.status == "idle"
        house.counter.live[0].busy = None
        house.clock.advance(61)
        await house.until(lambda: session.status == "closed")


async def test_the_budget_takes_another_session_than_a_busy_one(build: Build):
    policy = Policy(live_sessions=2, queue_seconds=1.0)
    async with build(saving(), policy=policy) as house:
        a, b, c, d = [await house.create() for _ in range(4)]
        await house.count(a.id)
        await house.count(b.id)
        house.counter.live[0].busy = "a dialog is open"
        assert await house.count(c.id) == 1
        assert (await house.status(a.id), await house.status(b.id)) == ("idle", "paused")
        house.counter.live[1].busy = "a dialog is open"
        with pytest.raises(SessionLimit):
            await house.count(d.id)
        house.counter.live[0].busy = None
        assert await house.count(d.id) == 1
        assert (await house.status(a.id), await house.status(c.id)) == ("paused", "idle")


async def test_the_end_of_the_process_saves_a_busy_session_all_the_same(
    build: Build, tmp_path: Path
):
    async with build(saving(), folder=tmp_path) as house:
        session = await house.create()
        await house.count(session.id)
        house.counter.live[0].busy = "a dialog is open"
    async with build(saving(), folder=tmp_path) as house:
        assert await house.count(session.id) == 2


async def test_only_a_call_that_changed_something_makes_a_checkpoint(build: Build):
    async with build(saving(checkpoint_seconds=0.001)) as house:
        session = await house.create()
        await house.count(session.id)
        await house.until(lambda: house.counter.checkpoints == 1)
        for _ in range(3):
            await house.call(session.id, "get")
        house.clock.advance(1)
        assert session.bindings["counter"].checkpoint_at is None
        assert house.counter.checkpoints == 1
        await house.count(session.id)
        house.clock.advance(1)
        await house.until(lambda: house.counter.checkpoints == 2)


@pytest.mark.parametrize("closed", [True, False])
async def test_a_checkpoint_that_fails_is_said_unless_its_session_ends(
    build: Build, caplog: pytest.LogCaptureFixture, *, closed: bool
):
    async with build(saving(checkpoint_seconds=0.001)) as house:
        session = await house.create()
        await house.call(session.id, "get")
        counter, begun, failing, failed = house.counter.live[0], *(anyio.Event() for _ in range(3))

        async def checkpoint() -> Snapshot | None:
            begun.set()
            await failing.wait()
            failed.set()
            raise ServiceUnavailable("The counter does not answer.")

        counter.checkpoint = checkpoint
        await house.count(session.id)
        with anyio.fail_after(5):
            await begun.wait()
            if closed:
                await house.registry.close(LOCAL, session.id)
            failing.set()
            await failed.wait()
            await anyio.wait_all_tasks_blocked()
    said = [record.message for record in caplog.records if "not saved" in record.message]
    assert len(said) == (0 if closed else 1)
