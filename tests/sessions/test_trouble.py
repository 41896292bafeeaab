"""Changes that meet each other, and a store that fails: nothing is lost, leaked, or true in memory only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.counting import Counter, Counting, Nobody
from support.engine import Build, Engine, failing
from support.selection import matrix

from statehold.sessions.calls.request import Request
from statehold.sessions.clock import ManualClock
from statehold.sessions.errors import (
    ServiceNotBound,
    SessionBusy,
    SessionClosed,
    SessionError,
    StoreUnavailable,
)
from statehold.sessions.json_codec import JSON
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, NodeRecord, Timeouts
from statehold.sessions.services import CallContext, SessionView, Snapshot
from statehold.sessions.transitions.admission import USED_SECONDS


class Lingering(Counting):
    """A counter whose connections close when the test lets them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.may_close = anyio.Event()
        self.closing = anyio.Event()

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
        counter = await super().open(session, snapshot)
        close = counter.aclose

        async def aclose() -> None:
            self.closing.set()
            await self.may_close.wait()
            await close()

        counter.aclose = aclose
        return counter


async def test_a_change_during_a_pause_waits_and_leaves_one_session(build: Build):
    counter = Lingering(pause="release")
    async with build(counter) as engine:
        session = await engine.create()
        await engine.count(session.id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.registry.pause, LOCAL, session.id)
            await counter.closing.wait()
            tasks.start_soon(engine.registry.extend, LOCAL, session.id, 60.0)
            tasks.start_soon(engine.count, session.id)
            counter.may_close.set()
        statistics = engine.registry.statistics()
        assert (statistics["owned"], statistics["live"], counter.open_now) == (1, 1, 1)
        assert await engine.count(session.id) == 2


async def test_no_other_process_opens_a_session_that_is_still_being_paused(
    build: Build, tmp_path: Path
):
    counter = Lingering(pause="release")
    async with build(counter, folder=tmp_path) as here, build(folder=tmp_path) as there:
        session = await here.create()
        await here.count(session.id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.registry.pause, LOCAL, session.id)
            await counter.closing.wait()
            with pytest.raises(SessionBusy):
                await there.call(session.id)
            counter.may_close.set()
        assert await there.count(session.id) == 1


@pytest.mark.parametrize("change", matrix("rename", "extend", "pause"))
async def test_a_paused_session_is_free_again_after_a_change(
    build: Build, tmp_path: Path, change: str
):
    async with (
        build(Counting(pause="release"), folder=tmp_path) as here,
        build(Counting(pause="release"), folder=tmp_path) as there,
    ):
        session = await here.create()
        await here.registry.pause(LOCAL, session.id)
        arguments: dict[str, Any] = {"extend": {"seconds": 5.0}, "rename": {"name": "new"}}
        of = there.registry.rename_delete if change == "rename" else there.registry
        await getattr(of, change)(LOCAL, session.id, **arguments.get(change, {}))
        assert there.registry.statistics()["owned"] == 0
        assert await here.count(session.id) == 1


async def test_a_session_that_was_taken_answers_no_more_calls(build: Build):
    counter = Lingering()
    async with build(counter) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.store.join(NodeRecord(id="n_thief", proof_key="", started_at=0.0))
        await engine.store.declare_dead(engine.node.id)
        await engine.store.claim(session.id, "n_thief", engine.clock.now())
        with pytest.raises(SessionBusy):
            await engine.registry.states.update(LOCAL, session.id, {})
        await counter.closing.wait()
        with pytest.raises(SessionBusy):
            await engine.call(session.id)
        counter.may_close.set()
        await engine.until(session.ownership_ended.is_set)
        assert (counter.opened, counter.open_now) == (1, 0)


async def test_work_in_the_background_that_a_full_disk_stops_is_one_line_in_the_log(
    build: Build, caplog: pytest.LogCaptureFixture
):
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.store.flush()
        engine.clock.advance(USED_SECONDS + 1)
        with failing(engine):
            await engine.count(session.id)
            await engine.until(lambda: caplog.records)
    assert [record.message for record in caplog.records if record.exc_info] == []
    assert "The disk is full." in caplog.messages[0]


async def test_the_first_answer_waits_until_it_is_durable_that_there_is_a_connection(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    """After a kill right after the first call, the loss of the connection must still be reported."""
    async with build(Counting()) as engine:
        session = await engine.create()
        requested, may, real = anyio.Event(), anyio.Event(), engine.store.write
        answers: list[object] = []
        early: list[object] = []

        async def write(*args: Any, **kwargs: Any) -> object:
            requested.set()
            await may.wait()
            return await real(*args, **kwargs)

        async def call() -> None:
            answers.append(await engine.count(session.id))

        monkeypatch.setattr(engine.store, "write", write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await requested.wait()
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            early += answers
            may.set()
        assert not early
        assert answers


async def test_the_sweep_goes_on_after_it_failed(build: Build, monkeypatch: pytest.MonkeyPatch):
    async with build(policy=Policy(retention=100.0)) as engine:
        session = await engine.create()
        await engine.registry.close(LOCAL, session.id)

        async def broken() -> list[str]:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(engine.node, "find_dead", broken)
            engine.clock.advance(120)
            await engine.until(lambda: engine.registry.statistics()["deadlines"] == 1)
        with anyio.fail_after(5):
            while await engine.store.get(session.id) is not None:
                engine.clock.advance(60)
                await anyio.wait_all_tasks_blocked()


async def test_a_connection_that_dies_while_its_session_is_paused_ends_as_a_pause(build: Build):
    class Dying(Counting):
        async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
            counter = await super().open(session, snapshot)

            async def saved() -> Snapshot | None:
                counter.die("killed while it was saved")
                await anyio.wait_all_tasks_blocked()
                return None

            counter.snapshot = saved
            return counter

    times = Timeouts(idle=60, paused=100, lifetime=0)
    async with build(Dying(pause="snapshot"), policy=Policy(timeouts=times)) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.registry.pause(LOCAL, session.id)
        stored = await engine.store.get(session.id)
        assert stored is not None
        assert (stored.status, stored.due_at) == ("paused", engine.clock.now() + 100)


async def test_a_service_that_cannot_save_does_not_keep_a_session_from_pausing(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    async def broken(self: Counter) -> Snapshot | None:
        raise RuntimeError("a bug in a service")

    monkeypatch.setattr(Counter, "snapshot", broken)
    counter = Counting(pause="snapshot")
    async with build(counter) as engine:
        sessions = [await engine.create() for _ in range(3)]
        for session in sessions:
            await engine.count(session.id)
        await engine.registry.pause(LOCAL, sessions[0].id)
        assert counter.open_now == 2
    assert counter.open_now == 0


async def test_a_store_that_fails_at_the_end_leaves_nothing_running(build: Build):
    counter = Counting()
    async with build(counter) as engine:
        session = await engine.create()
        await engine.count(session.id)

        async def refuse() -> None:
            raise StoreUnavailable("The disk is full.")

        engine.store.flush = refuse
    assert counter.open_now == 0


async def test_an_older_clock_does_not_make_an_older_snapshot_win(build: Build, tmp_path: Path):
    counter = Counting(pause="snapshot")
    async with build(counter, folder=tmp_path) as engine:
        session = await engine.create()
        for _ in range(2):
            await engine.count(session.id)
    behind = ManualClock(1_800_000_000.0 - 3600)
    async with build(Counting(pause="snapshot"), folder=tmp_path, clock=behind) as engine:
        for _ in range(5):
            await engine.count(session.id)
        await engine.registry.pause(LOCAL, session.id)
        assert await engine.count(session.id) == 8


async def test_one_session_cannot_restart_what_all_share(build: Build):
    shared = Counting(scope="shared")
    async with build(shared) as engine:
        one, other = await engine.create(), await engine.create()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.call, one.id, "hold")
            await shared.holding.wait()
            await engine.registry.restart(LOCAL, other.id)
            assert not shared.live[0].closed
            shared.let_go.set()


async def test_a_session_whose_opening_was_not_recorded_is_not_left_open(build: Build):
    counter = Counting(eager=True)
    async with build(counter) as engine:
        with failing(engine), pytest.raises(StoreUnavailable):
            await engine.create()
        assert counter.open_now == 0
        assert engine.registry.statistics()["live"] == 0


async def test_a_binding_that_was_not_stored_is_not_there(build: Build):
    async with build(Counting(), Counting("other")) as engine:
        session = await engine.create(services=["counter"])
        with failing(engine), pytest.raises(StoreUnavailable):
            await engine.registry.bind(LOCAL, session.id, "other")
        with pytest.raises(ServiceNotBound):
            await engine.call(session.id, service="other")
        await engine.registry.bind(LOCAL, session.id, "other")
        assert await engine.count(session.id, service="other") == 1


async def test_a_closed_session_stays_closed_when_the_store_learns_of_it_later(build: Build):
    async with build() as engine:
        session = await engine.create()
        with failing(engine):
            info, _ = await engine.registry.close(LOCAL, session.id)
            assert info["status"] == "closed"
        with pytest.raises(SessionClosed):
            await engine.call(session.id)
        await engine.pass_time(lambda: not engine.registry.statistics()["owned"])
        stored = await engine.store.get(session.id)
        assert stored is not None
        assert stored.status == "closed"


async def test_a_call_that_ran_is_answered_when_the_journal_cannot_be_written(build: Build):
    async with build(policy=Policy(journal_sync=True)) as engine:
        session = await engine.create()
        with failing(engine, "flush"):
            assert await engine.count(session.id) == 1


async def test_a_call_that_ran_is_answered_when_its_entry_cannot_be_made(build: Build):
    async with build() as engine:
        session = await engine.create()

        def refuse(*_: object) -> None:
            raise RecursionError

        engine.store.append_call = refuse
        try:
            assert await engine.count(session.id) == 1
        finally:
            del engine.store.append_call
        assert await engine.count(session.id) == 2


async def test_the_budget_works_again_after_the_store_did_not(build: Build):
    policy = Policy(live_sessions=1, queue_seconds=0.5)
    async with build(Counting(pause="release"), policy=policy) as engine:
        first, second = await engine.create(), await engine.create()
        await engine.count(first.id)
        with failing(engine), pytest.raises(SessionError):
            await engine.call(second.id)
        assert await engine.count(second.id) == 1


async def test_renaming_at_once_leaves_one_name(build: Build):
    async with build() as engine:
        session = await engine.create(name="first")
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(engine.registry.rename_delete.rename, LOCAL, session.id, name)
        name = session.record.name
        known_names = {n for n in ("first", "a", "b", "c") if await known(engine, n)}
        assert known_names == {name}
        await engine.registry.close(LOCAL, session.id)
        assert not await known(engine, name or "")


async def known(engine: Engine, name: str) -> bool:
    try:
        await engine.registry.find(LOCAL, name)
    except SessionError:
        return False
    return True


async def test_a_hanging_request_other_than_a_call_ends_with_its_session(build: Build):
    class Asked(Counter):
        async def request(self, method: str, params: JSON, ctx: CallContext) -> JSON:
            await anyio.sleep_forever()
            raise AssertionError

    class Asking(Counting):
        async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
            self.opened += 1
            self.open_now += 1
            self.live.append(Asked(self, session))
            return self.live[-1]

    async with build(Asking()) as engine:
        session = await engine.create()
        request = Request(LOCAL, session.id, "counter", "resources/read", {})

        async def read() -> None:
            with pytest.raises(SessionClosed):
                await engine.router.request_service(request, "resources/read", {}, Nobody())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await engine.until(lambda: session.in_flight)
            await engine.registry.close(LOCAL, session.id, force=True)


@pytest.mark.thorough
async def test_a_call_that_does_not_end_does_not_cost_its_session_at_the_end(
    build: Build, tmp_path: Path
):
    class Deaf(Counter):
        async def call(self, tool: str, arguments: Any, ctx: CallContext) -> Any:
            with anyio.CancelScope(shield=True):
                return await super().call(tool, arguments, ctx)

    class Stubborn(Counting):
        async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
            self.opened += 1
            self.open_now += 1
            self.live.append(Deaf(self, session))
            return self.live[-1]

    counter = Stubborn()
    ids: list[str] = []
    ended: list[str] = []
    async with (
        anyio.create_task_group() as tasks,
        build(counter, folder=tmp_path, policy=Policy(close_grace=0.0)) as engine,
    ):
        ids.append((await engine.create()).id)

        async def call() -> None:
            await engine.call(ids[0], "hold")
            ended.extend(ids)

        tasks.start_soon(call)
        await counter.holding.wait()
        counter.live[0].aclose = released(counter)
    assert ended == ids
    async with build(folder=tmp_path) as engine:
        assert await engine.status(ids[0]) == "paused"


def released(counter: Counting) -> Any:
    """Return an `aclose` that ends the deaf call."""

    async def aclose() -> None:
        counter.let_go.set()
        counter.open_now -= 1

    return aclose
