"""Writes that wait together share a transaction, and do not affect one another."""

from __future__ import annotations

import errno
import threading
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from sqlalchemy import Connection
from store_making import NODE, MakeStore, Sessions, entry, node_record
from support.process_exit import join_threads
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import InvalidArgument, NameTaken, SessionFenced, StoreUnavailable
from statehold.sessions.journal.entries import CallEntry
from statehold.sessions.journal.redaction import Redactor
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import BindingRecord, SnapshotRecord, StateRecord
from statehold.sessions.services import ToolResult
from statehold.sessions.store import Write, database, writer
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.store.writer import LATER


class Outcomes:
    """Runs writes at once, so that they wait together, and records the outcome of each."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    async def _one(self, key: str, work: Awaitable[object]) -> None:
        try:
            await work
        except Exception as error:
            self.found[key] = type(error).__name__
        else:
            self.found[key] = "done"

    async def gather(self, works: Mapping[str, Awaitable[object]]) -> dict[str, str]:
        async with anyio.create_task_group() as tasks:
            for key, work in works.items():
                tasks.start_soon(self._one, key, work)
        return self.found


def write(session_id: str, epoch: int = 1, **parts: Any) -> Write:
    return Write(session_id, NODE, epoch, **parts)


def state(session_id: str, version: int) -> StateRecord:
    return StateRecord(session_id=session_id, version=version, value={"n": version})


async def test_of_writes_that_wait_together_the_later_wins(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    writes = {
        str(n): store.write(
            write(
                "sh_a",
                session={"used_at": float(n)},
                state=state("sh_a", n),
                journal=[entry("sh_a", n)],
            )
        )
        for n in range(1, 1001)
    }
    with anyio.fail_after(10):
        assert set((await Outcomes().gather(writes)).values()) == {"done"}
    record, carried = await store.get("sh_a"), await store.state("sh_a")
    assert record is not None
    assert carried is not None
    assert (record.used_at, carried.version, carried.value) == (1000.0, 1000, {"n": 1000})
    assert len(await store.journal("sh_a", last=2000)) == 1000


async def test_writes_of_different_columns_are_merged(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a")
    await sessions.make("sh_b")
    works = {
        "1": store.write(write("sh_a", session={"used_at": 5.0, "due_at": 6.0})),
        "2": store.write(write("sh_a", session={"status": Status.PAUSED})),
        "3": store.write(write("sh_b", session={"used_at": 7.0})),
        "4": store.write(write("sh_a", session={"due_at": None})),
    }
    assert set((await Outcomes().gather(works)).values()) == {"done"}
    a, b = await store.get("sh_a"), await store.get("sh_b")
    assert a is not None
    assert b is not None
    assert (a.used_at, a.due_at, a.status) == (5.0, None, Status.PAUSED)
    assert b.used_at == 7.0


async def test_a_stale_write_fails_alone(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a")
    works = {
        "good": store.write(write("sh_a", session={"used_at": 2.0})),
        "stale": store.write(write("sh_a", 0, session={"used_at": 3.0})),
        "gone": store.write(write("sh_x", session={"used_at": 3.0})),
    }
    outcomes = await Outcomes().gather(works)
    assert outcomes == {"good": "done", "stale": "SessionFenced", "gone": "SessionFenced"}
    a = await store.get("sh_a")
    assert a is not None
    assert a.used_at == 2.0


async def test_a_release_fences_the_writes_behind_it(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a")
    works = {
        "before": store.write(write("sh_a", session={"used_at": 2.0})),
        "release": store.write(write("sh_a", session={"node": None})),
        "behind": store.write(write("sh_a", session={"used_at": 3.0})),
    }
    outcomes = await Outcomes().gather(works)
    assert outcomes == {"before": "done", "release": "done", "behind": "SessionFenced"}
    a = await store.get("sh_a")
    assert a is not None
    assert (a.used_at, a.node) == (2.0, None)


async def test_a_unit_that_the_database_refuses_fails_alone(
    store: SQLStore, sessions: Sessions
) -> None:
    for number in range(40):
        await sessions.make(f"sh_{number}", name=f"name {number}")
    works: dict[str, Awaitable[object]] = {
        str(n): store.write(write(f"sh_{n}", session={"used_at": 9.0})) for n in range(40)
    }
    works["taken"] = store.write(write("sh_1", session={"name": "name 2", "due_at": 1.0}))
    works["seq"] = store.write(write("sh_3", journal=[entry("sh_3", 2**70)]))
    works["text"] = store.write(write("sh_4", session={"reason": "\ud83d"}))
    works["number"] = store.write(
        write("sh_5", state=StateRecord(session_id="sh_5", version=2**70))
    )
    works["twice"] = sessions.make("sh_6")
    works["new"] = sessions.make("sh_new")
    outcomes = await Outcomes().gather(works)
    refused = {key: value for key, value in outcomes.items() if value != "done"}
    assert refused == {
        "taken": NameTaken.__name__,
        "seq": InvalidArgument.__name__,
        "text": InvalidArgument.__name__,
        "number": InvalidArgument.__name__,
        "twice": InvalidArgument.__name__,
    }
    for number in range(40):
        record = await store.get(f"sh_{number}")
        assert record is not None
        assert (record.used_at, record.due_at) == (9.0, None)
    assert await store.get("sh_new") is not None
    assert await store.check() == []


async def test_a_step_that_breaks_fails_alone_and_leaves_no_trace(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")

    def broken(connection: Connection) -> None:
        connection.exec_driver_sql("UPDATE session SET reason = 'half done'")
        raise KeyError("what")

    assert isinstance(store, SQLStore)
    works = {
        "before": store.write(write("sh_a", session={"used_at": 2.0})),
        "broken": store._writer.submit(broken),  # pyright: ignore[reportPrivateUsage]
        "behind": store.write(write("sh_a", session={"due_at": 3.0})),
    }
    outcomes = await Outcomes().gather(works)
    assert outcomes == {"before": "done", "broken": "KeyError", "behind": "done"}
    a = await store.get("sh_a")
    assert a is not None
    assert (a.used_at, a.due_at, a.reason) == (2.0, 3.0, None)


async def test_a_name_passes_on_when_its_holder_closes_just_before(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", name="login")
    works = {
        "close": store.write(write("sh_a", session={"status": Status.CLOSED, "node": None})),
        "create": sessions.make("sh_b", name="login"),
    }
    assert set((await Outcomes().gather(works)).values()) == {"done"}


async def test_bindings_and_snapshots_of_one_batch_keep_their_order(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", "x")

    def saved(seq: int) -> SnapshotRecord:
        return SnapshotRecord(
            session_id="sh_a", service="x", seq=seq, taken_at=1, epoch=1, data=bytes([seq])
        )

    works = {
        "1": store.write(write("sh_a", snapshots=[saved(1)])),
        "2": store.write(write("sh_a", unbind=["x"])),
        "3": store.write(
            write("sh_a", bindings=[BindingRecord(session_id="sh_a", service="x", generation=5)])
        ),
        "4": store.write(write("sh_a", snapshots=[saved(n) for n in (7, 8, 9)])),
    }
    assert set((await Outcomes().gather(works)).values()) == {"done"}
    assert [b.generation for b in await store.bindings("sh_a")] == [5]
    assert await store.snapshot("sh_a", "x") == saved(9)


async def test_a_cancelled_waiter_neither_loses_its_write_nor_disturbs_others(
    store: SQLStore, sessions: Sessions
) -> None:
    for number in range(30):
        await sessions.make(f"sh_{number}")
    outcomes = Outcomes()
    for rounds in range(1, 6):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                for number in range(30):
                    work = store.write(write(f"sh_{number}", session={"used_at": float(rounds)}))
                    tasks.start_soon(outcomes._one, str(number), work)  # pyright: ignore[reportPrivateUsage]
                await anyio.lowlevel.checkpoint()
                scope.cancel()
    await store.flush()
    for number in range(30):
        record = await store.get(f"sh_{number}")
        assert record is not None
        assert record.used_at == 5.0


async def test_a_create_that_is_cancelled_before_it_is_taken_is_left_out(
    store: SQLStore, sessions: Sessions
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.make, "sh_a")
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await store.flush()
    assert await store.get("sh_a") is None


async def test_cancelled_reads_leave_the_connections_usable(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    for _ in range(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(store.get, "sh_a")
                await anyio.lowlevel.checkpoint()
                scope.cancel()
    with anyio.fail_after(5):
        assert await store.get("sh_a") is not None


@pytest.mark.parametrize("first", matrix("sh_few", "sh_many", "sh_both"))
async def test_past_the_backlog_a_session_with_many_entries_drops_none_of_others(
    first: str, tmp_path: Path
) -> None:
    many = [("sh_many", seq) for seq in range(1, 31)]
    few = [("sh_few", seq) for seq in range(1, 4)]
    order = {"sh_few": few + many, "sh_many": many + few, "sh_both": many[:9] + few + many[9:]}
    async with SQLStore.sqlite(tmp_path, journal_backlog=10) as store:
        await store.join(node_record(NODE))
        for session in ("sh_few", "sh_many"):
            await Sessions(store).make(session)
        for session, seq in order[first]:
            store.append(entry(session, seq), NODE)
        await store.flush()
        assert store.dropped_entries == 23
        assert [e.seq for e in await store.journal("sh_few")] == [1, 2, 3]
        assert [e.seq for e in await store.journal("sh_many")] == list(range(24, 31))


@pytest.mark.parametrize(
    ("sessions", "kept"),
    matrix(([30], 7), ([3] * 10, 7), ([1] * 30, 7), ([9, 2, 2], 7), ([10, 0, 1], 7)),
)
async def test_past_the_backlog_many_sessions_of_one_owner_drop_nothing_of_another(
    sessions: list[int], kept: int, tmp_path: Path
) -> None:
    async with SQLStore.sqlite(tmp_path, journal_backlog=10) as store:
        await store.join(node_record(NODE))
        names = [f"sh_{number}" for number in range(len(sessions))]
        for name in ("sh_few", *names):
            await Sessions(store).make(name)
        for seq in range(1, 4):
            store.append(entry("sh_few", seq), NODE, "ann")
        for name, count in zip(names, sessions, strict=True):
            for seq in range(1, count + 1):
                store.append(entry(name, seq), NODE, "bob")
        await store.flush()
        assert [e.seq for e in await store.journal("sh_few")] == [1, 2, 3]
        numbers = [[e.seq for e in await store.journal(name)] for name in names]
        assert sum(map(len, numbers)) == kept
        # Each session lost its oldest, and the largest one the most.
        for count, left in zip(sessions, numbers, strict=True):
            assert left == list(range(count - len(left) + 1, count + 1))
        assert store.dropped_entries == sum(sessions) - kept


async def test_an_entry_that_cannot_be_stored_is_counted_and_leaves_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        store.append(entry("sh_a", 1), NODE)
        store.append(entry("sh_a", 2, error="\ud83d secret"), NODE)
        store.append(entry("sh_a", 3), NODE)
        await store.flush()
        assert store.dropped_entries == 1
        assert [e.seq for e in await store.journal("sh_a")] == [1, 3]
    assert "secret" not in caplog.text


@dataclass(slots=True)
class Call(CallEntry):
    """An entry of a call that says when it is made."""

    made: list[int]

    def values(self) -> dict[str, Any]:
        self.made.append(self.seq)
        if self.tool == "spoilt":
            raise KeyError("secret")
        return CallEntry.values(self)


def call(seq: int, built: list[int], tool: str = "inc") -> Call:
    result = ToolResult({"content": []})
    request: dict[str, Any] = {
        "arguments": {},
        "outcome": result,
        "operation_id": None,
        "run": None,
    }
    when: dict[str, Any] = {"started_at": 1.0, "ended_at": 2.0, "generation": 1}
    rest: dict[str, Any] = {"limit": 1000, "redactor": Redactor(), "made": built}
    return Call("sh_a", NODE, 1, seq, "counter", tool, **request, **when, **rest)


async def test_entries_of_calls_are_made_once_in_their_place_and_fail_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    built: list[int] = []
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        store.append_call(call(1, built), "ann")
        store.append_call(call(2, built, "spoilt"), "ann")
        store.append(entry("sh_a", 3), NODE)
        store.append_call(call(4, built), "ann")
        assert built == []
        await store.flush()
        # The second call made the batch fail. The batch ran again with the calls that could be built.
        assert sorted(built) == [1, 2, 4]
        assert store.dropped_entries == 1
        assert [e.seq for e in await store.journal("sh_a")] == [1, 3, 4]
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


async def test_only_so_many_entries_hold_on_to_what_they_are_made_of(tmp_path: Path) -> None:
    built: list[int] = []
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        for seq in range(1, LATER + 11):
            store.append_call(call(seq, built), "ann")
        assert built == list(range(LATER + 1, LATER + 11))
        await store.flush()
        numbers = [e.seq for e in await store.journal("sh_a", last=LATER * 2)]
        assert numbers == list(range(1, LATER + 11))


class Flushes:
    """Counts how often the log is flushed to the disk besides the commits that do so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.one = threading.Event()
        real = database.sync

        def sync(connection: Connection) -> None:
            real(connection)
            self.count += 1
            self.one.set()

        monkeypatch.setattr(database, "sync", sync)


async def test_a_flush_syncs_background_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = Flushes(monkeypatch)
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        assert flushes.count == 0
        store.append(entry("sh_a", 1), NODE)
        await store.flush()
        assert (
            flushes.count == 0
        )  # it was committed together with the question, and flushed with it
        with anyio.fail_after(5):
            store.append(entry("sh_a", 2), NODE)
            await until(lambda: store.journal("sh_a", last=1, after=1))
            assert flushes.count == 0
            await store.flush()
        assert flushes.count == 1
        await store.flush()
        assert flushes.count == 1


async def test_background_writes_are_synced_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SYNC", 0.001)
    flushes = Flushes(monkeypatch)
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        store.append(entry("sh_a", 1), NODE)
        assert await anyio.to_thread.run_sync(flushes.one.wait, 5)
        assert [e.seq for e in await store.journal("sh_a")] == [1]


async def test_a_flush_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SYNC", 0.001)
    flushes, failures = Flushes(monkeypatch), [1, 2]
    real = database.sync

    def failing(connection: Connection) -> None:
        if failures:
            failures.pop()
            raise OSError(errno.EIO, "no")
        real(connection)

    monkeypatch.setattr(database, "sync", failing)
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        store.append(entry("sh_a", 1), NODE)
        assert await anyio.to_thread.run_sync(flushes.one.wait, 5)
        assert failures == []
        assert sum(store.write_durations.values["failed",].counts) > 0


async def test_closing_writes_what_was_written_behind(tmp_path: Path) -> None:
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        for seq in range(1, 2501):
            store.append(entry("sh_a", seq), NODE)
    assert store.dropped_entries == 0
    async with SQLStore.sqlite(tmp_path) as again:
        assert len(await again.journal("sh_a", last=5000)) == 2500


async def test_a_cancelled_owner_still_writes_what_was_written_behind(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        async with SQLStore.sqlite(tmp_path) as store:
            await store.join(node_record(NODE))
            await Sessions(store).make("sh_a")
            store.append(entry("sh_a", 1), NODE)
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    async with SQLStore.sqlite(tmp_path) as again:
        assert [e.seq for e in await again.journal("sh_a")] == [1]


async def test_writes_that_wait_at_the_close_are_done_or_refused(tmp_path: Path) -> None:
    outcomes = Outcomes()
    async with anyio.create_task_group() as tasks, SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        for number in range(50):
            await Sessions(store).make(f"sh_{number}")
        for number in range(50):
            work = store.write(write(f"sh_{number}", session={"used_at": 7.0}))
            tasks.start_soon(outcomes._one, f"sh_{number}", work)  # pyright: ignore[reportPrivateUsage]
        await anyio.lowlevel.checkpoint()
    assert set(outcomes.found.values()) <= {"done", StoreUnavailable.__name__}
    async with SQLStore.sqlite(tmp_path) as again:
        for key, outcome in outcomes.found.items():
            record = await again.get(key)
            assert record is not None
            assert (record.used_at == 7.0) == (outcome == "done")


@pytest.mark.parametrize("make_store", matrix("file", "postgresql", "mariadb"), indirect=True)
async def test_two_stores_on_one_database_lose_nothing_of_each_other(make_store: MakeStore) -> None:
    async with make_store() as one, make_store() as two:
        await one.join(node_record(NODE))
        works: dict[str, Awaitable[object]] = {}
        for number in range(100):
            works[str(number)] = Sessions(one if number % 2 else two).make(f"sh_{number}")
        assert set((await Outcomes().gather(works)).values()) == {"done"}
        assert await two.counts() == {"idle": 100}
        await one.write(write("sh_1", session={"node": None}))
        with pytest.raises(SessionFenced):
            await two.write(write("sh_1", session={"used_at": 3.0}))


async def test_opening_and_closing_leaves_nothing_behind(make_store: MakeStore, leaks: Any) -> None:
    threads = set(threading.enumerate())
    for number in range(10):
        async with make_store() as store:
            await store.join(node_record(f"n_{number}"))
            await store.nodes()
    await leaks.check()
    join_threads(threads)
