"""Journals as they are read, counted and kept bounded; receipts and summaries."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite
from store_making import NODE, OTHER, MakeStore, Sessions, entry, node_record
from support.selection import matrix

from statehold.sessions.errors import SessionFenced
from statehold.sessions.records import (
    HistoryFilter,
    JournalKind,
    JournalRecord,
    ReceiptRecord,
    SummaryRecord,
)
from statehold.sessions.store import JournalLimits, Write, journal_queries
from statehold.sessions.store.sql import SQLStore


def write(session_id: str, epoch: int = 1, node: str = NODE, **parts: Any) -> Write:
    return Write(session_id, node, epoch, **parts)


def message(seq: int, role: str, run: str | None = None) -> JournalRecord:
    content = {"content": f"{role} {seq}"}
    return entry(
        "sh_a", seq, kind=JournalKind.MESSAGE, tool=None, role=role, run=run, request=content
    )


async def seqs(store: SQLStore, **wanted: Any) -> list[int]:
    return [each.seq for each in await store.history("sh_a", HistoryFilter(**wanted))]


async def filled(store: SQLStore, sessions: Sessions) -> None:
    """Two runs of a question, a call and an answer, a call that failed, and a transition."""
    await sessions.make("sh_a")
    await store.write(
        write(
            "sh_a",
            journal=[
                message(1, "system"),
                message(2, "user", "run 1"),
                entry("sh_a", 3, tool="click", status="ok", run="run 1", started_at=3.0),
                message(4, "assistant", "run 1"),
                message(5, "user", "run 2"),
                entry("sh_a", 6, tool="fill", status="error", run="run 2", started_at=6.0),
                message(7, "assistant", "run 2"),
                entry("sh_a", 8, kind=JournalKind.TRANSITION, tool=None, status="paused"),
            ],
        )
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param({}, [1, 2, 3, 4, 5, 6, 7, 8], id="everything, newest last"),
        pytest.param({"limit": 2}, [7, 8], id="the last"),
        pytest.param({"limit": 0}, [], id="none"),
        pytest.param({"last_runs": 1}, [5, 6, 7], id="the last run"),
        pytest.param({"last_runs": 2}, [2, 3, 4, 5, 6, 7], id="the last runs"),
        pytest.param({"last_runs": 0}, [], id="no run"),
        pytest.param({"last_runs": 9}, [2, 3, 4, 5, 6, 7], id="more runs than there are"),
        pytest.param({"kinds": ["call"]}, [3, 6], id="tool calls"),
        pytest.param({"kinds": ["call"], "limit": 1}, [6], id="the last tool call"),
        pytest.param({"kinds": ["message"]}, [1, 2, 4, 5, 7], id="what was said"),
        pytest.param(
            {"kinds": ["message"], "roles": ["user", "assistant"]}, [2, 4, 5, 7], id="pairs"
        ),
        pytest.param(
            {"kinds": ["message"], "skip_roles": ["system"]},
            [2, 4, 5, 7],
            id="roles left out",
        ),
        pytest.param({"skip_roles": ["user"]}, [1, 3, 4, 6, 7, 8], id="what has no role stays"),
        pytest.param({"skip_tools": ["fill"]}, [1, 2, 3, 4, 5, 7, 8], id="tools left out"),
        pytest.param({"statuses": ["error"]}, [6], id="by status"),
        pytest.param({"tools": ["click", "none"]}, [3], id="by tool"),
        pytest.param({"runs": ["run 1"]}, [2, 3, 4], id="by run"),
        pytest.param({"since": 3.0, "until": 6.0}, [3], id="by time, from and before"),
        pytest.param({"before": 3}, [1, 2], id="before a position"),
    ],
)
async def test_a_journal_is_read_with_filters(
    store: SQLStore, sessions: Sessions, wanted: dict[str, Any], found: list[int]
) -> None:
    await filled(store, sessions)
    assert await seqs(store, **wanted) == found


@pytest.mark.parametrize(
    ("make_store", "entries", "limit"),
    matrix(("file", 2_000, 199), ("file", 10_000, 999), ("memory", 10_000, 999)),
    indirect=["make_store"],
)
async def test_pages_have_each_entry_once(
    store: SQLStore, sessions: Sessions, entries: int, limit: int
) -> None:
    await sessions.make("sh_a")
    await store.write(write("sh_a", journal=[entry("sh_a", n) for n in range(1, entries + 1)]))
    read: list[int] = []
    before: int | None = None
    while page := await seqs(store, limit=limit, before=before):
        read = page + read
        before = page[0]
    assert read == list(range(1, entries + 1))


async def test_filters_are_answered_by_an_index(tmp_path: Path) -> None:
    """No unwanted entry is read."""
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
    with sqlite3.connect(tmp_path / "statehold.db") as connection:
        for condition in (
            "kind = 'call'",
            "tool = 'x'",
            "status = 'error'",
            "run = 'r'",
            "role = 'u'",
        ):
            query = f"SELECT seq FROM journal WHERE session_id = 's' AND {condition} ORDER BY seq DESC LIMIT 20"
            plan = connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
            assert "USING COVERING INDEX journal_look" in str(plan)
            assert "TEMP B-TREE" not in str(plan)
    connection.close()


async def test_the_open_calls_of_an_owner_are_found_by_an_index(
    tmp_path: Path,
) -> None:
    """The receipts of ended calls are not read."""
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        assert await store.open_calls("local") == []
    statement = journal_queries._OPEN_CALLS  # pyright: ignore[reportPrivateUsage]
    query = statement.params(owner="local").compile(
        dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}
    )
    with sqlite3.connect(tmp_path / "statehold.db") as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
    connection.close()
    assert "receipt USING INDEX receipt_started" in str(plan)


async def test_the_open_calls_of_one_session_are_found_beside_many_others(
    store: SQLStore, sessions: Sessions
) -> None:
    for number, session_id in enumerate(("sh_a", "sh_b")):
        await sessions.make(session_id)
        call = entry(session_id, 1, status="started", started_at=float(number))
        receipt = ReceiptRecord(
            session_id=session_id,
            operation_id="task-1",
            digest="d",
            status="started",
            seq=1,
            epoch=1,
            started_at=float(number),
            expires_at=1e9,
        )
        await store.write(write(session_id, journal=[call], receipts=[receipt]))
    assert [each[0] for each in await store.open_calls("local")] == ["sh_b", "sh_a"]
    assert [each[0] for each in await store.open_calls("local", "sh_a")] == ["sh_a"]
    assert await store.open_calls("another", "sh_a") == []


def run(seq: int, name: str, status: str) -> JournalRecord:
    return entry("sh_a", seq, kind=JournalKind.RUN, tool=None, status=status, run=name)


async def test_runs_are_left_out_by_the_status_of_their_newest_entry(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    begun = [run(1, "a", "error"), message(2, "user", "a"), run(3, "b", "running")]
    begun += [message(4, "user", "b"), message(5, "user"), run(6, "a", "running")]
    await store.write(write("sh_a", journal=begun))
    assert await seqs(store, skip_run_statuses=["error"]) == [1, 2, 3, 4, 5, 6]
    ended = [run(6, "a", "completed"), run(3, "b", "error")]
    await store.write(write("sh_a", ended_entries=ended))
    assert await seqs(store, skip_run_statuses=["error", "cancelled"]) == [1, 2, 5, 6]
    assert await seqs(store, skip_run_statuses=["error"], last_runs=1) == [1, 2, 6]
    assert await seqs(store, kinds=["run"], runs=["b"]) == [3]
    tally = await store.journal_counts("sh_a")
    assert (tally.entries, tally.runs, tally.transitions) == (6, 2, 0)


async def test_a_summary_of_a_session_without_an_owner_is_kept_until_it_has_one(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    summary = SummaryRecord(session_id="sh_a", text="x", updated_at=4.0, through_seq=3)
    unowned = Write("sh_a", None, 1, summary=summary)
    with pytest.raises(SessionFenced):
        await store.write(unowned)
    await store.write(write("sh_a", session={"node": None, "status": "closed"}))
    await store.write(unowned)
    assert await store.summary("sh_a") == summary


async def _room(store: SQLStore) -> tuple[int, int]:
    """Return the counted entries and bytes of a journal, after a check that the tally has the same numbers."""

    def one(connection: Connection, statement: str) -> tuple[int, int]:
        row = connection.exec_driver_sql(statement).one()
        return row[0], row[1]

    def look(connection: Connection) -> tuple[int, int]:
        of = "WHERE session_id = 'sh_a'"
        counted = one(connection, f"SELECT count(*), sum(bytes) FROM journal {of}")
        assert counted == one(connection, f"SELECT entries, bytes FROM tally {of}")
        return counted

    return await store.transactions.read(look)


@pytest.mark.parametrize(
    "limits",
    [JournalLimits(entries=100, bytes=1 << 30), JournalLimits(entries=10**6, bytes=100 * 300)],
    ids=["entries", "bytes"],
)
async def test_a_journal_does_not_grow_past_its_limits_and_counts_what_went(
    make_store: MakeStore, limits: JournalLimits
) -> None:
    async with make_store(limits=limits) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        for start in range(1, 2001, 50):
            rows = [
                entry("sh_a", n, status="error" if n % 10 == 0 else "ok", run=f"run {n // 20}")
                for n in range(start, start + 50)
            ]
            await store.write(write("sh_a", journal=rows))
            count, size = await _room(store)
            assert count <= limits.entries
            assert size <= limits.bytes
        entries = await store.history("sh_a", HistoryFilter(limit=1000))
        assert [each.seq for each in entries] == list(range(entries[0].seq, 2001))
        assert entries[0].kind is JournalKind.COMPACTED
        assert entries[0].epoch == entries[1].epoch == 1
        gone: Any = entries[0].request
        assert (gone["from"], gone["to"], gone["entries"]) == (1, entries[0].seq, entries[0].seq)
        tally = await store.journal_counts("sh_a")
        assert tally.calls == {"count": {"ok": 1800, "error": 200}}
        assert (tally.entries, tally.last_seq) == (2000, 2000)
        assert abs(tally.runs - 101) <= 1


async def test_one_compaction_is_bounded() -> None:
    async with SQLStore.memory(limits=JournalLimits(entries=100)) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        rows = [entry("sh_a", n) for n in range(1, 5001)]
        await store.write(write("sh_a", journal=rows))
        assert (await _room(store))[0] == 5000 - 2000 + 1
        for number in range(5001, 5004):
            await store.write(write("sh_a", journal=[entry("sh_a", number)]))
        assert (await _room(store))[0] <= 100


async def test_a_call_that_has_begun_is_not_compacted() -> None:
    async with SQLStore.memory(limits=JournalLimits(entries=100)) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        begun = entry("sh_a", 1, status="started", operation_id="op")
        await store.write(write("sh_a", journal=[begun]))
        for number in range(2, 400):
            await store.write(write("sh_a", journal=[entry("sh_a", number, status="ok")]))
        entries = await store.history("sh_a", HistoryFilter(limit=1000))
        assert (entries[0].seq, entries[0].status) == (1, "started")
        done = entry("sh_a", 1, status="ok", operation_id="op", ended_at=3.0)
        await store.write(write("sh_a", ended_entries=[done]))
        assert (await seqs(store, limit=1000, statuses=["ok"]))[0] == 1
        await _room(store)
        assert (await store.journal_counts("sh_a")).entries == 399


async def test_earlier_counts_are_counted_once_at_any_position() -> None:
    """A call that had begun before it and ended since is the oldest entry then."""
    async with SQLStore.memory(limits=JournalLimits(entries=100)) as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        begun = entry("sh_a", 1, status="started", operation_id="op")
        await store.write(write("sh_a", journal=[begun]))
        for number in range(2, 400):
            await store.write(write("sh_a", journal=[entry("sh_a", number, status="ok")]))
        done = entry("sh_a", 1, status="ok", operation_id="op", ended_at=3.0)
        await store.write(write("sh_a", ended_entries=[done]))
        for number in range(400, 600):
            await store.write(write("sh_a", journal=[entry("sh_a", number, status="ok")]))
        entries = await store.history("sh_a", HistoryFilter(limit=1000))
        counted: Any = entries[0].request
        assert [each.kind for each in entries].count(JournalKind.COMPACTED) == 1
        assert (counted["from"], counted["to"]) == (1, entries[0].seq)
        assert (counted["entries"], counted["transitions"]) == (entries[0].seq, 0)
        tally = await store.journal_counts("sh_a")
        assert (tally.entries, tally.calls) == (599, {"count": {"ok": 599}})


def receipt(operation_id: str, **values: Any) -> ReceiptRecord:
    fields: dict[str, Any] = {
        "digest": "d",
        "status": "started",
        "seq": 1,
        "epoch": 1,
        "started_at": 2.0,
    }
    return ReceiptRecord(session_id="sh_a", operation_id=operation_id, **{**fields, **values})


async def test_a_receipt_comes_back_exact_until_its_session_is_purged(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    result: Any = {
        "content": [{"type": "image", "data": "aGk="}],
        "n": 2**80,
        "f": 1.0,
        "h": "\ud83d",
    }
    done = receipt("op", status="ok", ended_at=3.0, bytes=77, result=result)
    await store.write(write("sh_a", receipts=[receipt("op"), receipt("other")]))
    await store.write(write("sh_a", receipts=[done], forget=["other"]))
    assert await store.receipt("sh_a", "op") == done
    assert await store.receipt("sh_a", "other") is None
    assert await store.receipts("sh_a") == (1, 77)
    await store.write(write("sh_a", session={"status": "closed", "node": None}))
    assert await store.receipt("sh_a", "op") == done
    assert await store.purge("sh_a")
    assert await store.receipt("sh_a", "op") is None
    assert await store.check() == []


async def test_an_unfinished_call_of_a_dead_node_has_an_unknown_outcome(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    begun = entry("sh_a", 1, status="started", operation_id="op")
    await store.write(write("sh_a", journal=[begun], receipts=[receipt("op")]))
    await store.join(node_record(OTHER))
    assert await store.adopt([NODE], 9.0) == ["sh_a"]
    stored = await store.receipt("sh_a", "op")
    assert stored is not None
    assert (stored.status, stored.ended_at) == ("outcome_unknown", 9.0)
    [unknown, paused] = await store.history("sh_a", HistoryFilter())
    assert (unknown.status, unknown.ended_at) == ("outcome_unknown", 9.0)
    assert paused.kind is JournalKind.TRANSITION


async def test_a_summary_is_kept_until_the_next_one(store: SQLStore, sessions: Sessions) -> None:
    """A summary has a text, topics and a time."""
    await sessions.make("sh_a")
    assert await store.summary("sh_a") is None
    for text in ("first", "second"):
        summary = SummaryRecord(
            session_id="sh_a", text=text, topics=["a"], updated_at=4.0, through_seq=3
        )
        await store.write(write("sh_a", summary=summary))
        assert await store.summary("sh_a") == summary
