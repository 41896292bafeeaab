"""Creating, finding, calling, pausing, resuming and closing sessions, over the real registry, router and store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from sqlalchemy import Connection, event
from support.counting import Counting
from support.engine import Build

from statehold.sessions.errors import (
    NameTaken,
    ServiceUnavailable,
    SessionBusy,
    SessionClosed,
    SessionNotFound,
)
from statehold.sessions.records import LOCAL, NodeRecord, Principal

ANN = Principal(subject="ann")
BOB = Principal(subject="bob")


async def test_unknown_foreign_and_purged_sessions_answer_alike(build: Build):
    async with build() as engine:
        session = await engine.create(ANN)
        gone = await engine.create(BOB)
        await engine.registry.close(BOB, gone.id)
        await engine.registry.rename_delete.purge(BOB, gone.id)
        answers: set[str] = set()
        for ref in (session.id, gone.id, "sh_" + "a" * 26, "no such name"):
            for look in (engine.registry.find, engine.registry.info, engine.registry.close):
                with pytest.raises(SessionNotFound) as caught:
                    await look(BOB, ref)
                answers.add(repr(caught.value.details()) + caught.value.message)
        assert len(answers) == 1


async def test_a_name_is_an_alias_within_one_principal(build: Build):
    async with build() as engine:
        mine = await engine.create(ANN, name="work")
        theirs = await engine.create(BOB, name="work")
        assert (await engine.registry.find(ANN, "work")).id == mine.id
        assert (await engine.registry.find(BOB, "work")).id == theirs.id
        with pytest.raises(NameTaken) as caught:
            await engine.create(ANN, name="work")
        assert caught.value.session_id == mine.id


async def test_an_idle_session_is_paused_and_the_next_call_resumes_it(build: Build):
    async with build() as engine:
        session = await engine.create(idle=60.0)
        await engine.count(session.id)
        engine.clock.advance(59)
        assert await engine.count(session.id) == 2
        engine.clock.advance(59)
        assert await engine.status(session.id) == "idle"
        engine.clock.advance(2)
        await engine.until(lambda: session.status == "paused")
        assert engine.counter.open_now == 1
        answer = await engine.call(session.id)
        assert answer.payload["structuredContent"] == {"count": 3, "generation": 1}
        assert answer.notice is None


async def test_a_call_in_flight_keeps_a_session_from_being_paused(build: Build):
    async with build() as engine:
        session = await engine.create(idle=60.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.call, session.id, "hold")
            await engine.counter.holding.wait()
            engine.clock.advance(600)
            await anyio.lowlevel.checkpoint()
            assert session.status == "active"
            with pytest.raises(SessionBusy):
                await engine.registry.pause(LOCAL, session.id)
            engine.counter.let_go.set()
        engine.clock.advance(59)
        assert session.status == "idle"


async def test_a_paused_session_without_connections_leaves_memory_and_comes_back(build: Build):
    async with build(Counting(pause="release")) as engine:
        session = await engine.create(name="work")
        await engine.count(session.id)
        await engine.registry.pause(LOCAL, session.id)
        assert engine.registry.statistics()["owned"] == 0
        answer = await engine.call("work")
        assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
        assert answer.notice is not None
        assert "generation 1 to 2" in answer.notice
        assert "Lost: the count" in answer.notice
        assert (await engine.call("work")).notice is None


async def test_a_snapshot_brings_the_state_back_and_says_so(build: Build):
    async with build(Counting(pause="snapshot")) as engine:
        session = await engine.create()
        for _ in range(3):
            await engine.count(session.id)
        await engine.registry.pause(LOCAL, session.id)
        assert engine.counter.open_now == 0
        answer = await engine.call(session.id)
        assert answer.payload["structuredContent"]["count"] == 4
        assert answer.notice is not None
        assert "Restored: the count" in answer.notice


async def test_a_tool_that_fails_is_no_fault_of_the_session(build: Build):
    async with build() as engine:
        session = await engine.create()
        for _ in range(100):
            assert (await engine.call(session.id, "fail")).payload["isError"]
        assert session.status == "idle"


async def test_a_dead_eager_service_makes_no_session(build: Build):
    async with build(Counting(eager=True, refuse=1)) as engine:
        with pytest.raises(ServiceUnavailable) as caught:
            await engine.create()
        assert caught.value.session_id is not None
        assert await engine.status(caught.value.session_id) == "closed"
        assert engine.counter.open_now == 0


async def test_a_foreign_session_is_asked_for_as_an_unknown_one_is(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    """By id and owner: no row of another owner is loaded, whatever status its session has."""
    async with build() as engine:
        held, closed = await engine.create(ANN), await engine.create(ANN)
        await engine.registry.close(ANN, closed.id)
        requested: list[str] = []
        loaded: list[object] = []
        read = engine.store.transactions.read

        async def watched(query: Callable[[Connection], Any]) -> Any:
            statements: list[str] = []

            def note(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
                statements.append(statement)

            def run(connection: Connection) -> Any:
                event.listen(connection, "before_cursor_execute", note)
                try:
                    return query(connection)
                finally:
                    event.remove(connection, "before_cursor_execute", note)

            record = await read(run)
            # The sweep looks for its next time meanwhile.
            if not any("min(session.due_at)" in each for each in statements):
                requested.extend(statements)
                loaded.append(record)
            return record

        monkeypatch.setattr(engine.store.transactions, "read", watched)
        queries: list[list[str]] = []
        for ref in ("sh_aaaaaaaaaaaaaaaaaaaaaaaaaa", held.id, closed.id):
            requested.clear()
            for look in (engine.registry.find, engine.registry.info, engine.registry.states.read):
                with pytest.raises(SessionNotFound):
                    await look(BOB, ref)
            queries.append(list(requested))
        assert queries[1:] == queries[:1] * 2
        assert queries[0]
        assert loaded == [None] * len(loaded)


async def test_a_restart_finds_every_session_paused_with_its_state(build: Build, tmp_path: Path):
    async with build(Counting(pause="snapshot"), folder=tmp_path) as engine:
        session = await engine.create(name="work", state={"step": 2})
        for _ in range(2):
            await engine.count(session.id)
    async with build(Counting(pause="snapshot"), folder=tmp_path) as engine:
        info = await engine.registry.info(LOCAL, "work")
        assert (info["status"], info["services"][0]["generation"]) == ("paused", 1)
        assert [e.tool for e in await engine.store.journal(session.id) if e.tool] == ["inc"] * 2
        assert await engine.count("work") == 3


async def test_a_session_open_elsewhere_is_busy_and_says_where(build: Build, tmp_path: Path):
    async with build(folder=tmp_path) as here, build(folder=tmp_path) as there:
        session = await here.create(name="work")
        with pytest.raises(SessionBusy) as caught:
            await there.call(session.id)
        assert "a test" in caught.value.message
        await here.registry.close(LOCAL, session.id)
        with pytest.raises(SessionClosed):
            await there.call(session.id)


async def test_a_session_that_another_node_took_is_dropped_without_another_write(build: Build):
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        thief = NodeRecord(id="n_thief", proof_key="", started_at=0.0)
        await engine.store.join(thief)
        await engine.store.declare_dead(engine.node.id)
        assert await engine.store.claim(session.id, thief.id, engine.clock.now()) is not None
        with pytest.raises(SessionBusy):
            await engine.registry.states.update(LOCAL, session.id, {"mine": True})
        await engine.until(session.ownership_ended.is_set)
        assert engine.counter.open_now == 0
        state = await engine.store.state(session.id)
        assert state is not None
        assert state.value == {}
        with pytest.raises(SessionBusy):
            await engine.call(session.id)


async def test_reading_does_not_keep_a_session_alive(build: Build):
    async with build() as engine:
        session = await engine.create(idle=60.0)
        for _ in range(7):
            engine.clock.advance(9)
            await engine.registry.info(LOCAL, session.id)
        await engine.until(lambda: session.status == "paused")


async def test_the_journal_holds_calls_and_transitions_without_secrets(build: Build):
    async with build() as engine:
        session = await engine.create()
        await engine.call(session.id, "inc", password="hunter2", n=1)
        await engine.registry.pause(LOCAL, session.id)
        await engine.store.flush()
        entries = await engine.store.journal(session.id)
        assert [e.request.get("code", "call") for e in entries] == ["T02", "call", "T08"]
        assert entries[1].request == {"password": "[redacted]", "n": 1}
        assert [e.seq for e in entries] == [1, 2, 3]
        await engine.registry.resume(LOCAL, session.id)
        await engine.registry.close(LOCAL, session.id)
        await engine.store.flush()
        entries = await engine.store.journal(session.id)
        codes = [e.request["code"] for e in entries[2:]]
        assert codes == ["T08", "T09", "T12", "T18"]
        assert {e.session_id for e in entries} == {session.id}


async def test_a_paused_session_is_given_back_when_its_change_fails(build: Build):
    async with build(Counting(pause="release")) as engine:
        session = await engine.create()
        await engine.registry.pause(LOCAL, session.id)
        await engine.create(name="taken")
        with pytest.raises(NameTaken):
            await engine.registry.rename_delete.rename(LOCAL, session.id, "taken")
        assert engine.registry.statistics()["owned"] == 1


async def test_a_paused_session_is_given_back_when_its_change_is_cancelled(build: Build):
    async with build(Counting(pause="release")) as engine:
        session = await engine.create()
        await engine.registry.pause(LOCAL, session.id)
        with anyio.CancelScope() as scope:
            async with engine.registry.access.hold(LOCAL, session.id):  # pyright: ignore[reportPrivateUsage]
                assert engine.registry.statistics()["owned"] == 1
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert engine.registry.statistics()["owned"] == 0
