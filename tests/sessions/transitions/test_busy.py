"""Connections that are in use though no call is in flight: nothing pauses them but the end of the process."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from support.counting import Counting
from support.engine import Build

from statehold.sessions.errors import ServiceUnavailable, SessionBusy, SessionLimit
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.services import Snapshot
from statehold.sessions.transitions.pause import (
    CONTENTION,
    IDLE_TIMEOUT,
    NODE_CROWDED,
    PLACE_NEEDED,
    PLACE_NEEDED_BY_OTHERS,
    REQUESTED,
    SHUTDOWN,
    may_pause,
)
from statehold.sessions.transitions.revocation import REVOCATION


def saving(**options: float) -> Counting:
    return Counting(pause="snapshot", **options)  # pyright: ignore[reportArgumentType]


async def test_a_busy_connection_keeps_its_session_from_being_paused(build: Build):
    async with build(saving()) as engine:
        session = await engine.create(idle=60.0)
        await engine.count(session.id)
        engine.counter.live[0].busy = "a download is under way"
        engine.clock.advance(61)
        await engine.until(lambda: session.idle_since == engine.clock.now())
        assert session.status == "idle"
        with pytest.raises(SessionBusy) as caught:
            await engine.registry.pause(LOCAL, session.id)
        assert "counter: a download is under way" in caught.value.message
        engine.counter.live[0].busy = None
        engine.clock.advance(61)
        await engine.until(lambda: session.status == "paused")


async def test_a_busy_session_is_not_closed_for_being_idle(build: Build):
    async with build(saving(), policy=Policy(on_idle="close")) as engine:
        session = await engine.create(idle=60.0)
        await engine.count(session.id)
        engine.counter.live[0].busy = "a trace is on"
        engine.clock.advance(61)
        await engine.until(lambda: session.idle_since == engine.clock.now())
        assert session.status == "idle"
        engine.counter.live[0].busy = None
        engine.clock.advance(61)
        await engine.until(lambda: session.status == "closed")


async def test_the_budget_takes_another_session_than_a_busy_one(build: Build):
    policy = Policy(live_sessions=2, queue_seconds=1.0)
    async with build(saving(), policy=policy) as engine:
        a, b, c, d = [await engine.create() for _ in range(4)]
        await engine.count(a.id)
        await engine.count(b.id)
        engine.counter.live[0].busy = "a dialog is open"
        assert await engine.count(c.id) == 1
        assert (await engine.status(a.id), await engine.status(b.id)) == ("idle", "paused")
        engine.counter.live[1].busy = "a dialog is open"
        with pytest.raises(SessionLimit):
            await engine.count(d.id)
        engine.counter.live[0].busy = None
        assert await engine.count(d.id) == 1
        assert (await engine.status(a.id), await engine.status(c.id)) == ("paused", "idle")


CAUSES = {
    "idle timeout": IDLE_TIMEOUT,
    "request": REQUESTED,
    "place": PLACE_NEEDED,
    "place for others": PLACE_NEEDED_BY_OTHERS,
    "crowded node": NODE_CROWDED,
    "contention": CONTENTION,
    "revocation": REVOCATION,
    "shutdown": SHUTDOWN,
}
INTERRUPTING = {"contention", "revocation", "shutdown"}
USES: dict[str, set[str]] = {
    # Each use of a session, and the causes that pause it all the same.
    "nothing": set(CAUSES),
    "a call": set(),
    "a person": INTERRUPTING,
    "work of a connection": INTERRUPTING,
    "a connection that cannot be saved": set(CAUSES) - {"place for others", "crowded node"},
    "an end": set(),
}


@pytest.mark.parametrize("use", USES)
async def test_one_decision_for_each_use_of_a_session_and_each_cause_of_a_pause(
    build: Build, use: str
) -> None:
    async with build(Counting(pause="keep" if "saved" in use else "snapshot")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        async with anyio.create_task_group() as tasks:
            if use == "a call":
                tasks.start_soon(engine.call, session.id, "hold")
                await engine.counter.holding.wait()
            elif use == "a person":
                await engine.registry.controls.take(LOCAL, session.id, "ada")
            elif use == "work of a connection":
                engine.counter.live[0].busy = "a download is under way"
            elif use == "an end":
                await engine.registry.close(LOCAL, session.id)
            assert {name for name in CAUSES if may_pause(session, CAUSES[name])} == USES[use]
            engine.counter.let_go.set()


async def test_the_end_of_the_process_saves_a_busy_session_all_the_same(
    build: Build, tmp_path: Path
):
    async with build(saving(), folder=tmp_path) as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].busy = "a dialog is open"
    async with build(saving(), folder=tmp_path) as engine:
        assert await engine.count(session.id) == 2


async def test_only_a_call_that_changed_something_makes_a_checkpoint(build: Build):
    async with build(saving(checkpoint_seconds=0.001)) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.until(lambda: engine.counter.checkpoints == 1)
        for _ in range(3):
            await engine.call(session.id, "get")
        engine.clock.advance(1)
        assert session.bindings["counter"].checkpoint_at is None
        assert engine.counter.checkpoints == 1
        await engine.count(session.id)
        engine.clock.advance(1)
        await engine.until(lambda: engine.counter.checkpoints == 2)


@pytest.mark.parametrize("closed", [True, False])
async def test_a_failed_checkpoint_is_reported_unless_its_session_ends(
    build: Build, caplog: pytest.LogCaptureFixture, *, closed: bool
):
    async with build(saving(checkpoint_seconds=0.001)) as engine:
        session = await engine.create()
        await engine.call(session.id, "get")
        counter, begun, failing, failed = engine.counter.live[0], *(anyio.Event() for _ in range(3))

        async def checkpoint() -> Snapshot | None:
            begun.set()
            await failing.wait()
            failed.set()
            raise ServiceUnavailable("The counter does not answer.")

        counter.checkpoint = checkpoint
        await engine.count(session.id)
        with anyio.fail_after(5):
            await begun.wait()
            if closed:
                await engine.registry.close(LOCAL, session.id)
            failing.set()
            await failed.wait()
            await anyio.wait_all_tasks_blocked()
    messages = [record.message for record in caplog.records if "not saved" in record.message]
    assert len(messages) == (0 if closed else 1)


async def test_sharees_leave_the_owner_a_quarter_of_the_calls_at_a_time(build: Build) -> None:
    async with build(policy=Policy(calls_per_session=4)) as engine:
        session = await engine.create()
        admission = engine.registry.admission
        for sharee in ("ben", "ben", "eve"):
            admission.admit(session, "counter", "inc", sharee)
        with pytest.raises(SessionBusy):
            admission.admit(session, "counter", "inc", "dora")
        admission.admit(session, "counter", "inc")
        with pytest.raises(SessionBusy):
            admission.admit(session, "counter", "inc")
        for sharee in ("ben", "ben", "eve", None):
            admission.release(session, sharee)
