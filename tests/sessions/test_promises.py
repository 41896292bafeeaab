"""Properties of ids, names, times and the order of events that other session systems promise and no other test shows."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import Connection, text
from support.counting import Counter as Connected
from support.counting import Counting
from support.engine import Build, Engine
from support.waiting import until

from statehold.sessions.errors import (
    CallTimedOut,
    InvalidArgument,
    ServiceUnavailable,
    SessionClosed,
    SessionExpired,
    SessionNotFound,
)
from statehold.sessions.ids import new_id
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, Timeouts
from statehold.sessions.services import SessionView, Snapshot


async def codes(engine: Engine, session: str) -> list[str]:
    await engine.store.flush()
    entries = await engine.store.journal(session)
    return [entry.request["code"] for entry in entries if entry.kind == "transition"]


def test_ids_are_unguessable_and_say_nothing():
    """An id has 130 random bits behind a fixed prefix, and each character is equally frequent at each position."""
    ids = [new_id() for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    assert {(len(each), each[:3]) for each in ids} == {(29, "sh_")}
    for signs in zip(*(each[3:] for each in ids), strict=True):
        counts = Counter(signs)
        assert set(counts) == set("abcdefghijklmnopqrstuvwxyz234567")
        assert max(counts.values()) < 2 * len(ids) / 32


async def test_each_time_of_a_session_is_shown_and_takes_effect(build: Build):
    """Idle, paused, lifetime and retention times pass one after the other."""
    policy = Policy(retention=1000.0, longest=Timeouts(idle=100, paused=0, lifetime=0))
    async with build(policy=policy) as engine:
        with pytest.raises(InvalidArgument):
            await engine.create(idle=101.0)
        old = await engine.create(idle=10.0, paused=50.0, lifetime=10_000.0)
        info = await engine.registry.info(LOCAL, old.id)
        times = [info[f"{name}_seconds"] for name in ("idle", "paused", "lifetime")]
        assert times == [10.0, 50.0, 10_000.0]
        short = await engine.create(idle=100.0, paused=50.0, lifetime=40.0)
        engine.clock.advance(11)
        await engine.until(lambda: old.status == "paused")
        engine.clock.advance(30)
        await engine.until(lambda: short.status == "closed")
        assert await codes(engine, short.id) == ["T02", "T17", "T18"]
        with pytest.raises(SessionExpired):
            await engine.call(short.id)
        assert await engine.status(old.id) == "paused"
        engine.clock.advance(21)
        await engine.pass_time(lambda: old.ownership_ended.is_set())

        async def is_closed() -> bool:
            return await engine.status(old.id) == "closed"

        async def are_purged() -> bool:
            engine.clock.advance(1)
            return not any([await engine.store.get(each.id) for each in (short, old)])

        await until(is_closed)
        assert (await engine.registry.info(LOCAL, old.id))["reason"] == "paused_timeout"
        engine.clock.advance(1001)
        await until(are_purged)
        for session in (short.id, old.id):
            with pytest.raises(SessionNotFound):
                await engine.registry.info(LOCAL, session)


class Slow(Counting):
    """A service that never opens."""

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> Connected:
        await anyio.sleep_forever()
        raise AssertionError


async def test_the_times_of_calls_and_of_connecting_take_effect(build: Build):
    """A service has its own times, and each error tells its caller the time that was exceeded."""
    slow = Slow("slow", connect_seconds=0.01)
    async with build(Counting(call_seconds=0.02), slow) as engine:
        session = await engine.create()
        with anyio.fail_after(5):
            with pytest.raises(CallTimedOut, match=r"0\.02 seconds"):
                await engine.call(session.id, "hold")
            with pytest.raises(ServiceUnavailable, match=r"0\.01 seconds"):
                await engine.call(session.id, service="slow")
        assert await engine.count(session.id) == 1


@pytest.mark.parametrize(("grace", "outcome"), [(0.02, "session_closed"), (60.0, "held")])
async def test_a_closing_session_waits_for_its_calls_as_long_as_it_is_told_to(
    build: Build, grace: float, outcome: str
):
    async with build(policy=Policy(close_grace=grace)) as engine:
        session = await engine.create()
        outcomes: list[str] = []

        async def call() -> None:
            try:
                answer = await engine.call(session.id, "hold")
            except SessionClosed as error:
                outcomes.append(error.code)
            else:
                outcomes.append(answer.payload["content"][0]["text"])

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await engine.counter.holding.wait()
                tasks.start_soon(engine.registry.close, LOCAL, session.id)
                if outcome == "held":
                    await engine.until(lambda: session.status == "closing")
                    engine.counter.let_go.set()
        assert outcomes == [outcome]
        assert await engine.status(session.id) == "closed"


async def test_an_idle_session_is_closed_in_order_where_that_is_wanted(build: Build):
    """The session is detected as idle, closed and released, in this order, and each step has its cause."""
    async with build(policy=Policy(on_idle="close", timeouts=Timeouts(idle=10))) as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.clock.advance(11)
        await engine.until(lambda: session.ownership_ended.is_set())
        assert await codes(engine, session.id) == ["T02", "T11", "T18"]
        assert engine.counter.open_now == 0
        info = await engine.registry.info(LOCAL, session.id)
        assert (info["status"], info["reason"]) == ("closed", "idle_timeout")


async def test_an_error_is_written_down_before_what_is_done_about_it(build: Build):
    """The status comes first, then the cause, then the recovery; nothing is in flight afterwards."""
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].die("exit code 7")
        await engine.until(lambda: session.status == "error")
        info = await engine.registry.info(LOCAL, session.id)
        assert (info["status"], info["in_flight"]) == ("error", 0)
        assert info["services"][0]["last_error"] == "exit code 7"
        await engine.pass_time(lambda: session.status == "idle")
        assert await codes(engine, session.id) == ["T02", "T14", "T15"]
        entries = await engine.store.journal(session.id)
        [lost] = [entry for entry in entries if entry.request.get("code") == "T14"]
        assert "exit code 7" in lost.request["cause"]


async def test_a_session_at_hand_is_found_without_the_store(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    """A lookup is one in a dictionary, however many sessions there are, and so is reading a state."""
    async with build(policy=Policy(sessions_per_principal=0)) as engine:
        session = await engine.create(state={"n": 1})
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(engine.create)
        reads: list[object] = []

        async def read(query: object) -> Any:
            reads.append(query)
            raise AssertionError("the store is not asked")

        monkeypatch.setattr(engine.store.transactions, "read", read)
        for _ in range(100):
            assert engine.registry.live(LOCAL, session.id) is session
            assert (await engine.registry.states.read(LOCAL, session.id)).value == {"n": 1}
            assert (await engine.registry.find(LOCAL, session.id)) is session
        assert reads == []


async def test_a_name_never_becomes_a_path(build: Build, tmp_path: Path):
    """Such a name is refused wherever it is given, and changes nothing."""
    names = ["../x", "/etc/x", "a/b", "a\\b", "..", ".", "", "a\x00b", "a\nb", "x" * 3000]
    before = sorted(os.walk(tmp_path))
    async with build(folder=tmp_path / "data") as engine:
        session = await engine.create(name="work")
        for name in [*names, session.id]:
            with pytest.raises(InvalidArgument):
                await engine.create(name=name)
            with pytest.raises(InvalidArgument):
                await engine.registry.rename_delete.rename(LOCAL, session.id, name)
        assert (await engine.registry.find(LOCAL, "work")).id == session.id
    there = [each for each in sorted(os.walk(tmp_path)) if "data" not in each[0]]
    assert there == [(str(tmp_path), ["data"], [])]
    assert before == [(str(tmp_path), [], [])]


async def test_names_that_look_alike_are_different_and_come_back_exactly(build: Build):
    """Names are stored as they are, apart from Unicode's normal form."""
    async with build(Counting()) as engine:
        names = [
            "work",
            "w\u043erk",
            "\uff57ork",
            "work ",
            "w\xf6rk",
            "%",
            "a_b",
            "'; DROP TABLE session; --",
        ]
        ids = {name: (await engine.create(name=name)).id for name in names}
        assert len(set(ids.values())) == len(names)
        for name, session in ids.items():
            assert (await engine.registry.find(LOCAL, name)).id == session
            assert (await engine.registry.info(LOCAL, session))["name"] == name
        assert (await engine.registry.find(LOCAL, "wo\u0308rk")).id == ids["w\xf6rk"]


async def test_a_save_that_waits_does_not_hold_up_a_call(build: Build, tmp_path: Path):
    """Another process locks the database, and a hundred calls of another session are still answered."""
    async with build(folder=tmp_path) as engine:
        saved, called = await engine.create(), await engine.create()
        await engine.count(called.id)
        done = anyio.Event()

        async def save() -> None:
            await engine.registry.states.update(LOCAL, saved.id, {"n": 1})
            done.set()

        with (
            closing(sqlite3.connect(tmp_path / "statehold.db", isolation_level=None)) as other,
            anyio.fail_after(5),
        ):
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(save)
                for number in range(2, 102):
                    assert await engine.count(called.id) == number
                assert not done.is_set()
                other.execute("ROLLBACK")
        stored = await engine.store.state(saved.id)
        assert stored is not None
        assert stored.value == {"n": 1}


def changed(connection: Connection) -> int:
    """Return how many rows were ever written over a connection of SQLite."""
    return int(connection.scalar(text("SELECT total_changes()")) or 0)


async def test_a_call_costs_the_store_the_same_however_many_there_were(build: Build):
    """Earlier entries are not written again."""
    async with build() as engine:
        session = await engine.create()

        async def written() -> int:
            await engine.store.flush()
            return await engine.store.transactions.read(changed)

        async def cost() -> int:
            before = await written()
            await engine.count(session.id)
            return await written() - before

        await engine.count(session.id)
        first = await cost()
        for _ in range(300):
            await engine.count(session.id)
        assert first == await cost() > 0
