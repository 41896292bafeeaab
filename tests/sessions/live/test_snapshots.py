"""Snapshots of sessions that are not paused: after calls, however they end, after notifications, and again after faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import pytest
from support.checkpoints import SECONDS, create_counted, saving, settle
from support.counting import Counter
from support.engine import Build, Engine

from statehold.sessions.errors import (
    CallTimedOut,
    InvalidArgument,
    OutcomeUnknown,
    ServiceUnavailable,
    StoreUnavailable,
)
from statehold.sessions.live import snapshots as kept
from statehold.sessions.live.session import LiveSession
from statehold.sessions.records import LOCAL
from statehold.sessions.services import Snapshot, ToolResult
from statehold.sessions.store.base import Write


def untold() -> None:
    raise AssertionError("nobody has asked to be told")


@dataclass(eq=False)
class Restless(Counter):
    """A connection in which something changes by itself."""

    on_unsaved: Callable[[], None] = field(default=untold)

    def report_changes(self, on_unsaved: Callable[[], None]) -> None:
        self.on_unsaved = on_unsaved

    def stir(self) -> None:
        self.count += 1
        self.unsaved = True
        self.on_unsaved()


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.counting.Counter", Restless)


async def saved_count(engine: Engine, session: LiveSession) -> int | None:
    snapshot = await engine.store.snapshot(session.id, "counter")
    return None if snapshot is None else kept.decode_snapshot(snapshot.data).data["count"]


def failing(counter: Counter, times: int) -> list[None]:
    """Have the next checkpoints fail; return a list that grows with each attempt."""
    tried: list[None] = []
    whole = counter.checkpoint

    async def checkpoint() -> Snapshot | None:
        tried.append(None)
        if len(tried) <= times:
            raise ServiceUnavailable("The counter does not answer.")
        return await whole()

    counter.checkpoint = checkpoint
    return tried


async def test_a_checkpoint_waits_for_a_call_that_takes_longer_than_saving_may(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kept, "SNAPSHOT_BOUND", 0.0)
    with anyio.fail_after(5):
        async with build(saving(concurrency=1)) as engine, anyio.create_task_group() as tasks:
            session, _ = await create_counted(engine)
            await engine.count(session.id)
            tasks.start_soon(engine.call, session.id, "hold")
            await engine.counter.holding.wait()
            await settle(engine, SECONDS)
            assert await saved_count(engine, session) == 1
            engine.counter.let_go.set()
            await settle(engine)
            assert await saved_count(engine, session) == 2


async def test_calls_that_wait_for_each_other_make_one_checkpoint(build: Build):
    with anyio.fail_after(5):
        async with build(saving(concurrency=1)) as engine:
            session, _ = await create_counted(engine)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(engine.call, session.id, "hold")
                await engine.counter.holding.wait()
                for _ in range(5):
                    tasks.start_soon(engine.call, session.id)
                await settle(engine, SECONDS)
                engine.counter.let_go.set()
            await settle(engine)
            assert engine.counter.checkpoints <= 2
            await settle(engine, SECONDS)
            assert await saved_count(engine, session) == 6


async def test_a_checkpoint_that_failed_is_tried_again_later_and_later(build: Build):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        tried = failing(counter, times=3)
        await engine.count(session.id)
        for wait, so_far in ((0.0, 1), (4.9, 1), (0.1, 2), (9.9, 2), (0.1, 3), (19.9, 3)):
            await settle(engine, wait)
            assert len(tried) == so_far
        assert await saved_count(engine, session) == 1
        await settle(engine, 0.1)
        assert await saved_count(engine, session) == 2
        await settle(engine, 1000.0)
        assert len(tried) == 4


async def test_a_call_does_not_wait_for_the_next_attempt_of_a_checkpoint_that_failed(build: Build):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        tried = failing(counter, times=3)
        await engine.count(session.id)
        for wait in (0.0, 5.0, 10.0):
            await settle(engine, wait)
        assert len(tried) == 3
        await engine.count(session.id)
        await settle(engine, SECONDS)
        assert await saved_count(engine, session) == 3
        await settle(engine, 1000.0)
        assert len(tried) == 4


async def test_a_checkpoint_that_was_not_stored_is_taken_again(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)

        async def write(_: object) -> None:
            raise StoreUnavailable("The disk is full.")

        with monkeypatch.context() as patch:
            patch.setattr(engine.store, "write", write)
            await engine.count(session.id)
            await settle(engine)
        assert not counter.unsaved
        assert await saved_count(engine, session) == 1
        await settle(engine, SECONDS)
        assert await saved_count(engine, session) == 2


async def test_a_checkpoint_is_taken_of_the_connection_that_is_there_when_it_is_due(build: Build):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        await engine.count(session.id)
        await settle(engine)
        # The next one is not due before the connection is another one.
        await engine.count(session.id)
        counter.die("killed")
        await engine.until(lambda: session.status == "error")
        await engine.pass_time(lambda: session.status == "idle")
        assert await engine.count(session.id) == 3
        await settle(engine, SECONDS)
        assert await saved_count(engine, session) == 3


async def test_nothing_is_saved_of_a_connection_that_ended_before_its_checkpoint(build: Build):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        await engine.count(session.id)
        binding = session.bindings["counter"]
        await engine.registry.close(LOCAL, session.id)
        await settle(engine, SECONDS)
        assert engine.counter.checkpoints == 1
        assert binding.checkpoint_at is None


async def test_a_checkpoint_is_skipped_after_another_snapshot(build: Build):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        await engine.count(session.id)
        await settle(engine)
        await engine.count(session.id)
        record = await engine.registry.snapshots.take(session, session.bindings["counter"])
        assert record is not None
        before = engine.counter.checkpoints
        await settle(engine, SECONDS)
        assert engine.counter.checkpoints == before


async def test_a_checkpoint_that_waits_is_not_taken_of_a_connection_that_ends(build: Build):
    with anyio.fail_after(5):
        async with build(saving(concurrency=1)) as engine, anyio.create_task_group() as tasks:
            session, counter = await create_counted(engine)

            async def hold() -> None:
                with pytest.raises(OutcomeUnknown):
                    await engine.call(session.id, "hold")

            tasks.start_soon(hold)
            await engine.counter.holding.wait()
            counter.unsaved = True
            engine.registry.snapshots.schedule(session, session.bindings["counter"])
            await settle(engine)
            counter.die("killed")
            await settle(engine)
            assert engine.counter.checkpoints == 1


async def test_a_connection_does_not_make_up_for_the_checkpoints_of_the_one_before(build: Build):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        tried = failing(counter, times=1)
        await engine.count(session.id)
        await settle(engine)
        assert len(tried) == 1
        counter.die("killed")
        await engine.until(lambda: session.status == "error")
        await engine.pass_time(lambda: session.status == "idle")
        await engine.call(session.id, "get")
        await settle(engine, 1000.0)
        assert engine.counter.checkpoints == 1


# However a call ends.


async def timed_out(engine: Engine, session: LiveSession) -> None:
    with pytest.raises(CallTimedOut):
        await engine.call(session.id, "hold")


async def cancelled(engine: Engine, session: LiveSession) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.call, session.id, "hold")
        await engine.counter.holding.wait()
        tasks.cancel_scope.cancel()


async def refused(engine: Engine, session: LiveSession) -> None:
    async def call(tool: str, arguments: object, ctx: object) -> ToolResult:
        raise InvalidArgument("The counter does not count that.")

    engine.counter.live[0].call = call
    with pytest.raises(InvalidArgument):
        await engine.call(session.id)


@pytest.mark.parametrize("ended", [timed_out, cancelled, refused])
async def test_effects_of_a_failed_call_are_saved(
    build: Build, ended: Callable[[Engine, LiveSession], Awaitable[None]]
):
    with anyio.fail_after(5):
        async with build(saving(call_seconds=0.05)) as engine:
            session, counter = await create_counted(engine)
            counter.count, counter.unsaved = 7, True
            await ended(engine, session)
            await settle(engine, SECONDS)
            assert await saved_count(engine, session) == 7


# Changes without a call.


@pytest.mark.usefixtures("restless")
async def test_a_spontaneous_change_is_saved_and_does_not_count_as_use(build: Build):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        assert isinstance(counter, Restless)
        idle_since = session.idle_since
        await settle(engine, 1.5)
        counter.stir()
        await settle(engine, kept.ECHO_SECONDS - 0.1)
        assert await saved_count(engine, session) == 1
        # A change shortly after the notification is in the snapshot as well.
        counter.count += 1
        await settle(engine, 0.1)
        assert await saved_count(engine, session) == 3
        assert (session.idle_since, session.status) == (idle_since, "idle")


@pytest.mark.thorough
@pytest.mark.usefixtures("restless")
async def test_endless_changes_are_saved_often_after_a_call_and_seldom_later(
    build: Build,
):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        assert isinstance(counter, Restless)
        for _ in range(2):
            before = engine.counter.checkpoints
            await engine.call(session.id, "get")
            for _ in range(100):
                await settle(engine, 1.0)
                counter.stir()
            checkpoints = engine.counter.checkpoints - before
            often, seldom = kept.AFTERMATH_SECONDS / SECONDS, 100 / kept.LATER_SECONDS
            assert seldom < checkpoints <= often + seldom + 1
        assert counter.unsaved
        for _ in range(500):
            if session.status == "idle":
                counter.stir()
            await settle(engine, 1.0)
        assert session.status == "paused"
        assert await saved_count(engine, session) == counter.count


@pytest.mark.usefixtures("restless")
async def test_a_change_long_after_a_call_is_saved_within_a_minute(build: Build):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        assert isinstance(counter, Restless)
        await settle(engine, 2 * kept.AFTERMATH_SECONDS)
        counter.stir()
        await settle(engine, kept.LATER_SECONDS)
        assert await saved_count(engine, session) == 2


@pytest.mark.usefixtures("restless")
async def test_changes_before_the_first_call_or_after_the_end_are_not_saved(build: Build):
    async with build(saving(eager=True)) as engine:
        session = await engine.create()
        counter = engine.counter.live[0]
        assert isinstance(counter, Restless)
        counter.stir()
        await settle(engine, 10.0)
        assert engine.counter.checkpoints == 0
        await engine.count(session.id)
        await settle(engine, SECONDS)
        assert engine.counter.checkpoints == 1
    counter.stir()
    assert engine.counter.checkpoints == 1


async def test_a_checkpoint_that_ends_while_its_session_is_closed_is_not_missed(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        may_end, whole, write = anyio.Event(), counter.checkpoint, engine.store.write

        async def checkpoint() -> Snapshot | None:
            await may_end.wait()
            return await whole()

        async def slowly(change: Write) -> None:
            if "closed_at" in change.session:
                may_end.set()
                await anyio.wait_all_tasks_blocked()
            await write(change)

        monkeypatch.setattr(counter, "checkpoint", checkpoint)
        monkeypatch.setattr(engine.store, "write", slowly)
        await engine.count(session.id)
        await settle(engine, SECONDS)
        with anyio.fail_after(5):
            await engine.registry.close(LOCAL, session.id, force=True)
        assert may_end.is_set()
        assert caplog.messages == []
