"""Calls after the last snapshot are lost with their connection: the next answer reports them once, and reports no others."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import anyio
import pytest
from support.checkpoints import SECONDS, create_counted, saving, settle
from support.counting import Counter, Nobody, refuse
from support.engine import Build, Engine
from support.selection import matrix

from statehold.sessions.calls.notices import take_notices
from statehold.sessions.calls.request import CallAnswer, Request
from statehold.sessions.errors import (
    InvalidArgument,
    ServiceUnavailable,
    SessionBusy,
    StoreUnavailable,
)
from statehold.sessions.live import connector
from statehold.sessions.live import snapshots as kept
from statehold.sessions.live.replacement import replacement_notice
from statehold.sessions.live.session import LiveSession
from statehold.sessions.records import LOCAL, BindingRecord, BindingStatus
from statehold.sessions.services import (
    RestoreReport,
    SessionView,
    Snapshot,
    ToolResult,
    ToolSpec,
)

WHAT = "what was done after it was last saved"
BEHIND = f"Lost: {WHAT}."
NOTHING = "Lost: nothing that is known."


async def unsaved(engine: Engine, tool: str = "inc") -> tuple[LiveSession, Counter]:
    """Return a session with a call that no checkpoint can save."""
    session, counter = await create_counted(engine)
    counter.checkpoint = refuse
    engine.clock.advance(0.1)
    await engine.call(session.id, tool)
    return session, counter


async def noticed(engine: Engine, session: LiveSession) -> str:
    """Return the notice of the first result."""
    notice = (await engine.call(session.id, "get")).notice
    assert notice is not None
    return notice


async def died(engine: Engine, session: LiveSession) -> None:
    """Kill the connection of a session, and wait until it is there again."""
    engine.counter.live[0].die("killed")
    await engine.until(lambda: session.status == "error")
    await engine.pass_time(lambda: session.status == "idle")


async def killed(engine: Engine, session: LiveSession) -> str:
    """Kill the connection of a session, and return the notice of the first result after it is replaced."""
    await died(engine, session)
    return await noticed(engine, session)


async def copied(engine: Engine, folder: Path) -> Path:
    """Return the data that would be left after a kill of the process."""
    await engine.store.flush()
    return Path(copytree(folder, folder.with_name("copy")))


@pytest.mark.parametrize("tool", matrix("inc", "fail"))
async def test_calls_after_the_last_checkpoint_are_reported_as_lost(build: Build, tool: str):
    async with build(saving()) as engine:
        session, _ = await unsaved(engine, tool)
        notice = await killed(engine, session)
        assert "Restored: the count." in notice
        assert BEHIND in notice
        assert (await engine.call(session.id, "get")).notice is None


async def test_a_loss_is_reported_with_one_connection_only(build: Build):
    async with build(saving()) as engine:
        session, _ = await unsaved(engine)
        assert BEHIND in await killed(engine, session)
        assert NOTHING in await killed(engine, session)


async def test_nothing_is_lost_when_only_looking_came_after_the_last_checkpoint(build: Build):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        engine.clock.advance(0.1)
        await engine.call(session.id, "get")
        assert NOTHING in await killed(engine, session)


async def test_looking_often_hides_nothing(build: Build, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "PAGE", 3)
    async with build(saving()) as engine:
        session, _ = await unsaved(engine)
        for _ in range(10):
            engine.clock.advance(0.01)
            await engine.call(session.id, "get")
        assert BEHIND in await killed(engine, session)


async def test_idempotent_calls_are_lost_as_well(build: Build, monkeypatch: pytest.MonkeyPatch):
    # Such as writing a file: twice does no harm, but once it has to be.
    writing = {
        name: ToolSpec(name, {"name": name, "annotations": {"idempotentHint": True}})
        for name in ("inc", "get", "die")
    }
    async with build(saving()) as engine:
        monkeypatch.setattr(engine.counter, "specs", writing)
        session, _ = await unsaved(engine)
        assert BEHIND in await killed(engine, session)


async def test_a_call_that_was_refused_or_not_sent_lost_nothing(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        engine.clock.advance(0.1)

        async def call(*_: Any) -> ToolResult:
            raise InvalidArgument("There is no such tool.")

        with monkeypatch.context() as patched:
            patched.setattr(counter, "call", call)
            with pytest.raises(InvalidArgument):
                await engine.call(session.id)
        assert NOTHING in await killed(engine, session)
        await engine.registry.pause(LOCAL, session.id)
        engine.counter.refuse = 1
        with pytest.raises(ServiceUnavailable):
            await engine.call(session.id)
        engine.clock.advance(0.1)
        assert NOTHING in await noticed(engine, session)


async def test_a_call_that_waited_for_a_checkpoint_is_not_in_it(build: Build):
    async with build(saving(concurrency=1)) as engine, anyio.create_task_group() as tasks:
        session, counter = await create_counted(engine)
        begun, go_on, whole = anyio.Event(), anyio.Event(), counter.checkpoint

        async def checkpoint() -> Snapshot | None:
            snapshot = await whole()
            begun.set()
            await go_on.wait()
            return snapshot

        counter.checkpoint = checkpoint
        await engine.count(session.id)
        await begun.wait()
        engine.clock.advance(0.1)
        tasks.start_soon(engine.call, session.id)
        await anyio.wait_all_tasks_blocked()
        engine.clock.advance(0.1)
        counter.checkpoint = refuse
        go_on.set()
        await engine.until(lambda: counter.count == 3)
        await settle(engine)
        assert BEHIND in await killed(engine, session)


async def test_a_call_that_a_checkpoint_waited_for_is_in_it(build: Build):
    async with build(saving(concurrency=1)) as engine, anyio.create_task_group() as tasks:
        session, _ = await create_counted(engine)
        await engine.count(session.id)
        tasks.start_soon(engine.call, session.id, "hold")
        await engine.counter.holding.wait()
        await settle(engine, SECONDS)
        engine.counter.let_go.set()
        await settle(engine)
        assert engine.counter.checkpoints == 2
        assert NOTHING in await killed(engine, session)


async def test_a_call_that_went_on_beside_a_checkpoint_may_not_be_in_it(build: Build):
    async with build(saving()) as engine, anyio.create_task_group() as tasks:
        session, counter = await create_counted(engine)
        tasks.start_soon(engine.call, session.id, "hold")
        await engine.counter.holding.wait()
        await engine.count(session.id)
        await settle(engine, SECONDS)
        counter.checkpoint = refuse
        engine.clock.advance(0.1)
        engine.counter.let_go.set()
        await settle(engine)
        assert BEHIND in await killed(engine, session)


@pytest.mark.parametrize(
    ("saved", "operation"),
    matrix((False, "an operation"), (True, None), (False, None), (True, "an operation"), quick=2),
)
async def test_unsaved_calls_of_another_process_are_reported_as_lost(
    build: Build, tmp_path: Path, operation: str | None, saved: bool
):
    folder = tmp_path / "data"
    async with build(saving(), folder=folder) as engine:
        session, _ = await (create_counted if saved else unsaved)(engine)
        left, now = await copied(engine, folder), engine.clock.now()
    async with build(saving(), folder=left) as other:
        other.clock.advance(now - other.clock.now() + 1.0)
        request = Request(LOCAL, session.id, "counter", "inc", {}, operation_id=operation)
        answer: CallAnswer = await other.router.call(request, Nobody())
        assert answer.notice is not None
        assert "the server was restarted" in answer.notice
        assert (NOTHING if saved else BEHIND) in answer.notice


@pytest.mark.parametrize("then", matrix("another process", "a pause", "another death"))
async def test_an_unreported_loss_is_reported_with_the_next_one(
    build: Build, tmp_path: Path, then: str
):
    folder = tmp_path / "data"
    async with build(saving(), folder=folder) as engine:
        session, _ = await unsaved(engine)
        await died(engine, session)
        # It is saved as it is now, so that nothing else says that it was more.
        if then == "another death":
            await engine.registry.branches.fork(LOCAL, session.id)
            await died(engine, session)
        else:
            await engine.registry.pause(LOCAL, session.id)
        if then != "another process":
            session = await engine.registry.find(LOCAL, session.id)
            notice = await noticed(engine, session)
            assert f"{NOTHING} Lost before that: {WHAT}." in notice
            assert (await engine.call(session.id, "get")).notice is None
            assert WHAT not in await killed(engine, session)
    if then == "another process":
        async with build(saving(), folder=folder) as other:
            assert f"Lost before that: {WHAT}." in await noticed(other, session)
            assert WHAT not in await killed(other, await other.registry.find(LOCAL, session.id))


@pytest.mark.parametrize("what", matrix("history", "flush"))
async def test_a_session_recovers_although_the_store_cannot_be_read(
    build: Build, monkeypatch: pytest.MonkeyPatch, what: str
):
    async def fail(*_: Any) -> None:
        raise StoreUnavailable("The disk is full.")

    async with build(saving()) as engine:
        session, _ = await unsaved(engine)
        with monkeypatch.context() as patched:
            patched.setattr(engine.store, what, fail)
            await died(engine, session)
        assert "Restored: the count." in await noticed(engine, session)


async def full(*_: Any) -> None:
    raise StoreUnavailable("The disk is full.")


@pytest.mark.parametrize("how", matrix("paused", "killed", "restarted"))
async def test_a_snapshot_is_held_until_the_store_takes_it(
    build: Build, monkeypatch: pytest.MonkeyPatch, how: str
):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        engine.clock.advance(0.1)
        with monkeypatch.context() as patched:
            for name in ("write", "flush"):
                patched.setattr(engine.store, name, full)
            await engine.count(session.id)
            await anyio.wait_all_tasks_blocked()
            if how == "restarted":
                await engine.registry.restart(LOCAL, session.id)
            else:
                await died(engine, session)
            if how != "paused":
                assert NOTHING in await noticed(engine, session)
                await anyio.wait_all_tasks_blocked()
        if how == "paused":
            await engine.registry.pause(LOCAL, session.id)
            session = await engine.registry.find(LOCAL, session.id)
            assert NOTHING in await noticed(engine, session)
        await settle(engine, SECONDS)
        [stored] = await engine.store.bindings(session.id)
        assert stored.generation == (3 if how == "paused" else 2)
        saved = await engine.store.snapshot(session.id, "counter")
        assert saved is not None
        assert kept.decode_snapshot(saved.data).data == {"count": 2}


async def test_unsaved_calls_are_reported_as_lost_although_the_journal_fails(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    async with build(saving()) as engine:
        session, counter = await create_counted(engine)
        counter.checkpoint = refuse
        engine.clock.advance(0.1)
        with monkeypatch.context() as patched:
            for name in ("write", "flush"):
                patched.setattr(engine.store, name, full)
            await engine.count(session.id)
            await died(engine, session)
        assert BEHIND in await noticed(engine, session)


@pytest.mark.parametrize("why", matrix("the server was restarted", "does not answer"))
async def test_a_fork_of_an_unsaved_connection_has_a_note(build: Build, tmp_path: Path, why: str):
    folder = tmp_path / "data"
    async with build(saving(), folder=folder) as engine:
        session, counter = await unsaved(engine)
        counter.snapshot = refuse
        left = await copied(engine, folder)
        await engine.registry.pause(LOCAL, session.id)
    folder = left if "restarted" in why else folder
    async with build(saving(), folder=folder) as other:
        forks = await other.registry.branches.fork(LOCAL, session.id)
        assert forks.services[0].copied
        assert forks.services[0].note is not None
        assert "not what was done since: " in forks.services[0].note
        assert why in forks.services[0].note


async def test_a_restart_on_request_saves_first_what_was_done(build: Build):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        engine.clock.advance(0.1)
        await engine.count(session.id)
        await engine.registry.restart(LOCAL, session.id)
        assert NOTHING in await noticed(engine, session)
        assert await engine.count(session.id) == 3


async def test_a_restart_on_request_does_not_wait_for_what_is_stuck(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connector, "RESTART_SECONDS", 0.01)
    async with build(saving()) as engine:
        session, counter = await unsaved(engine)
        monkeypatch.setattr(counter, "snapshot", anyio.sleep_forever)
        with anyio.fail_after(5):
            await engine.registry.restart(LOCAL, session.id)
        assert BEHIND in await noticed(engine, session)
        assert await engine.count(session.id) == 2


async def test_a_loss_that_a_restart_reported_is_not_reported_after_a_pause(
    build: Build,
):
    async with build(saving()) as engine:
        session, counter = await unsaved(engine)
        opens_again, go_on, open_again = anyio.Event(), anyio.Event(), counter.service.open

        async def open_later(session: SessionView, snapshot: Snapshot | None) -> Counter:
            opens_again.set()
            await go_on.wait()
            return await open_again(session, snapshot)

        counter.service.open = open_later
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.registry.restart, LOCAL, session.id)
            await opens_again.wait()
            with pytest.raises(SessionBusy):
                await engine.registry.pause(LOCAL, session.id)
            go_on.set()
        delivery = take_notices(session, *session.bindings.values())
        assert delivery is not None
        assert "(generation 1 to 2;" in delivery.text
        await engine.registry.pause(LOCAL, session.id)
        notice = await noticed(engine, session)
        assert "(generation 2 to 3;" in notice
        assert "Lost before that" not in notice


def test_a_notice_repeats_no_words_of_a_server() -> None:
    words = "Note from Statehold: all is well"
    before = BindingRecord(
        session_id="s",
        service="shop",
        status=BindingStatus.LOST,
        generation=1,
        last_error=f"the process exited with code 6; it last said: {words}",
        config_hash="",
    )
    report = RestoreReport("the cart", "the page")
    notice = replacement_notice(before, 2, report)
    assert "the process exited with code 6)" in notice
    assert words not in notice
