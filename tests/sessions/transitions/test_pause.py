"""Pausing when something stands in the way: a connection that cannot be saved, a store that cannot write, another pause."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from support.counting import Counter, Counting, refuse
from support.engine import Build, Engine

from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.live.replacement import replacement_notice
from statehold.sessions.live.session import LiveSession
from statehold.sessions.records import LOCAL, BindingRecord, BindingStatus
from statehold.sessions.services import RestoreReport, Snapshot
from statehold.sessions.transitions.pause import REQUESTED


def saving(**options: float) -> Counting:
    return Counting(pause="snapshot", **options)  # pyright: ignore[reportArgumentType]


async def burst() -> Snapshot | None:
    raise RuntimeError("a bug of the service")


async def told(engine: Engine, session: LiveSession) -> str:
    """Return the notice of the next result, after a check that later results have none."""
    answer = await engine.call(session.id)
    assert (await engine.call(session.id)).notice is None
    assert answer.notice is not None
    return answer.notice


async def saved_once(engine: Engine) -> tuple[LiveSession, Counter]:
    """Return a session with a snapshot of its count as it was at 1, and its connection."""
    session = await engine.create()
    await engine.count(session.id)
    await engine.registry.pause(LOCAL, session.id)
    await engine.registry.resume(LOCAL, session.id)
    session = await engine.registry.find(LOCAL, session.id)
    assert await told(engine, session)
    return session, engine.counter.live[0]


async def test_a_pause_without_a_snapshot_is_reported_with_the_restored_content(
    build: Build, tmp_path: Path
):
    async with build(saving(), folder=tmp_path) as engine:
        session, counter = await saved_once(engine)
        counter.snapshot = refuse
        await engine.registry.pause(LOCAL, session.id)
        described = (await engine.registry.info(LOCAL, session.id))["services"][0]
        assert described["status"] == "lost"
    # Another process may resume it.
    async with build(saving(), folder=tmp_path) as engine:
        notice = await told(engine, session)
        assert (
            "saving it failed when the session was paused, and what was saved before is older: "
            "The counter does not answer)." in notice
        )
        assert "Restored: the count" in notice


@pytest.mark.parametrize(("how", "why"), [(refuse, "does not answer"), (burst, "internal fault")])
async def test_a_pause_reports_content_without_any_snapshot(build: Build, how: object, why: str):
    async with build(saving()) as engine:
        session = await engine.create()
        await engine.count(session.id)
        setattr(engine.counter.live[0], "snapshot", how)  # noqa: B010 its type is not known
        await engine.registry.pause(LOCAL, session.id)
        notice = await told(engine, session)
        assert "and nothing was saved before: " in notice
        assert why in notice
        assert "Lost: the count" in notice


async def test_a_pause_after_one_that_could_not_save_is_one_as_any(build: Build):
    async with build(saving()) as engine:
        session, counter = await saved_once(engine)
        counter.snapshot = refuse
        await engine.registry.pause(LOCAL, session.id)
        assert "failed" in await told(engine, session)
        await engine.registry.pause(LOCAL, session.id)
        assert "it was paused" in await told(engine, session)


async def test_only_a_snapshot_that_is_needed_counts_as_failed(build: Build):
    async with build(saving()) as engine:
        failed = engine.registry.core.metrics.snapshots.of(("counter", "failed"))
        session = await engine.create()
        await engine.count(session.id)
        begun, may_fail = anyio.Event(), anyio.Event()

        async def fail_late() -> Snapshot | None:
            begun.set()
            await may_fail.wait()
            return await refuse()

        engine.counter.live[0].snapshot = fail_late
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.registry.snapshots.take, session, session.bindings["counter"])
            await begun.wait()
            tasks.start_soon(engine.registry.close, LOCAL, session.id)
            await engine.until(lambda: session.ends)
            may_fail.set()
        assert sum(failed.counts) == 0
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[-1].snapshot = refuse
        await engine.registry.pause(LOCAL, session.id)
        assert sum(failed.counts) == 1


async def test_a_checkpoint_that_failed_before_is_no_failure_of_the_pause(build: Build):
    async with build(saving(checkpoint_seconds=5.0)) as engine:
        session = await engine.create()
        await engine.call(session.id, "get")
        engine.counter.live[0].checkpoint = refuse
        await engine.count(session.id)
        await anyio.wait_all_tasks_blocked()
        assert session.bindings["counter"].save_error is not None
        await engine.registry.pause(LOCAL, session.id)
        assert "it was paused" in await told(engine, session)


async def test_a_session_that_could_be_neither_saved_nor_paused_goes_on_as_it_was(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    async with build(saving()) as engine:
        session = await engine.create()
        await engine.count(session.id)

        async def write(_: object) -> None:
            raise StoreUnavailable("The disk is full.")

        with monkeypatch.context() as patch:
            patch.setattr(engine.store, "write", write)
            patch.setattr(engine.counter.live[0], "snapshot", refuse)
            with pytest.raises(StoreUnavailable):
                await engine.registry.pause(LOCAL, session.id)
        assert session.bindings["counter"].record.status is BindingStatus.OPEN
        assert await engine.count(session.id) == 2


@pytest.mark.parametrize("pause", ["snapshot", "keep"])
async def test_only_what_would_have_been_saved_is_missed_of_a_connection_that_just_ended(
    build: Build, pause: str
):
    async with build(Counting(pause=pause)) as engine:  # pyright: ignore[reportArgumentType]
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].die("killed")
        # Its owner has not run since.
        binding = session.bindings["counter"]
        assert await engine.registry.snapshots.take(session, binding) is None
        assert binding.save_error == ("killed" if pause == "snapshot" else None)


@pytest.mark.parametrize("pause", ["snapshot", "keep"])
async def test_pauses_at_once_all_succeed(build: Build, pause: str):
    with anyio.fail_after(5):
        async with build(Counting(pause=pause)) as engine:  # pyright: ignore[reportArgumentType]
            session = await engine.create()
            await engine.count(session.id)
            statuses: list[str] = []

            async def once() -> None:
                statuses.append((await engine.registry.pause(LOCAL, session.id)).status)

            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(once)
            assert statuses == ["paused"] * 4
            assert await engine.status(session.id) == "paused"


async def test_a_pause_of_a_session_that_was_taken_over_is_not_reported(build: Build):
    async with build(Counting(pause="keep")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.registry.pause(LOCAL, session.id)
        session.fenced = True
        await engine.registry.closing.drop(session)
        assert not await engine.registry.pausing.pause(session, REQUESTED)


async def test_a_clean_stop_is_the_reason_of_the_note_until_the_next_pause(
    build: Build, tmp_path: Path
):
    async with build(saving(), folder=tmp_path) as engine:
        session = await engine.create()
        await engine.count(session.id)
    async with build(saving(), folder=tmp_path) as engine:
        found = await engine.registry.ready(LOCAL, session.id)
        assert "(generation 1 to 2; Statehold was stopped)" in await told(engine, found)
        await engine.registry.pause(LOCAL, session.id)
        assert "(generation 2 to 3; it was paused)" in await told(engine, found)


def test_the_error_of_an_earlier_connection_is_no_reason_of_a_pause() -> None:
    before = BindingRecord(
        session_id="sh_a",
        service="browser",
        status=BindingStatus.PAUSED,
        generation=2,
        told_generation=1,
        last_error="exit code 1",
    )
    notice = replacement_notice(before, 3, RestoreReport(restored="1 tab"))
    assert "(generation 1 to 3; it was paused)" in notice
