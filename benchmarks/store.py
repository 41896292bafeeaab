"""(e) Durable writes and journal appends per second: the store by itself, at 1, 10 and 100 writers, in a data folder and on
the servers of databases that are installed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from sqlalchemy import create_engine, inspect, make_url, text

from statehold.sessions.lifecycle import Status
from statehold.sessions.records import LOCAL, JournalKind, JournalRecord, SessionRecord, StateRecord
from statehold.sessions.store.base import Write
from statehold.sessions.store.sql import SQLStore

from .plan import Plan
from .report import Table, Target
from .samples import median, quantile, undisturbed
from .servers import running

NODE = "bench"
WRITERS = (1, 10, 100)
TEXT = "x" * 900
"""A text with which a state, and a journal entry, takes about 1 KB."""
APPENDS = 50
"""Entries that a writer adds before it waits until they are durable."""
WRITES_PER_SECOND = {"sqlite": 10_000.0, "postgresql": 5_000.0}

Make = Callable[[str], SQLStore]
"""Makes a store; each new name gives an empty one."""
Work = Callable[[SQLStore, int], Awaitable[int]]
"""One step of one writer: returns how many writes it made durable."""


async def measure(plan: Plan) -> Table:
    table = Table("(e) store: writes of 1 KB per second, each durable (fsync) when counted")
    for database in plan.databases:
        if database == "sqlite":
            await _measure(plan, table, database, lambda name: SQLStore.sqlite(plan.folder / name))
            continue
        with running(database) as url:
            if url is None:
                table.notes.append(f"{database} is not installed: python tests/peers/install.py")
                continue
            await _measure(plan, table, database, partial(_empty_store, url))
    table.notes.append("p50 and p99: how long one writer waits, for journal appends once per 50")
    return table


def _empty_store(url: str, name: str) -> SQLStore:
    engine = create_engine(make_url(url).set(drivername=_DRIVERS[url.partition(":")[0]]))
    with engine.begin() as connection:
        for name_of_table in inspect(connection).get_table_names():
            if name_of_table != "alembic_version":
                connection.execute(text(f"DELETE FROM {name_of_table}"))
    engine.dispose()
    return SQLStore.remote(url)


_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}


async def _measure(plan: Plan, table: Table, database: str, make: Make) -> None:
    for kind, work in (("fenced write", _writes), ("journal append", _appends)):
        for writers in WRITERS:
            store = make(f"store-{kind[:4]}{writers}")
            rates, waits = await _rounds(plan, store, work, writers)
            best = max(rates)
            table.rows.append(
                {
                    "database": database,
                    "what": kind,
                    "writers": writers,
                    "per second": round(median(rates)),
                    "best round": round(best),
                    "p50 ms": round(quantile(waits, 0.5) * 1e3, 3),
                    "p99 ms": round(quantile(waits, 0.99) * 1e3, 3),
                }
            )
            bound = WRITES_PER_SECOND.get(database)
            if bound is not None and kind == "fenced write" and writers == max(WRITERS):
                name = f"durable writes at 100 writers ({database})"
                table.targets.append(Target(name, best, bound, "/s", False))


async def _rounds(
    plan: Plan, store: SQLStore, make: Callable[[], Work], writers: int
) -> tuple[list[float], list[float]]:
    waits: list[float] = []
    async with store:
        for number in range(max(WRITERS)):
            await store.create(
                session_of(number), StateRecord(session_id=_id(number)), [], per_owner=0
            )
        work = make()
        await _round(store, work, writers, plan.store_seconds / 3, [])
        rates = [
            await _round(store, work, writers, plan.store_seconds, waits)
            for _ in range(plan.store_rounds)
        ]
        assert not store.dropped_entries, f"{store.dropped_entries} journal entries were dropped"
    return rates, waits


async def _round(
    store: SQLStore, work: Work, writers: int, seconds: float, waits: list[float]
) -> float:
    durable = 0
    clock = time.perf_counter

    async def writer(number: int, ends: float) -> None:
        nonlocal durable
        while (began := clock()) < ends:
            # Not `done += await ...`, which would add to what `done` was before the wait.
            count = await work(store, number)
            durable += count
            waits.append(clock() - began)

    with undisturbed():
        began = clock()
        async with anyio.create_task_group() as tasks:
            for number in range(writers):
                tasks.start_soon(writer, number, began + seconds)
        return durable / (clock() - began)


def _writes() -> Work:
    versions = [0] * max(WRITERS)

    async def write(store: SQLStore, number: int) -> int:
        versions[number] += 1
        state = StateRecord(session_id=_id(number), version=versions[number], value={"text": TEXT})
        await store.write(Write(_id(number), NODE, 1, state=state))
        return 1

    return write


def _appends() -> Work:
    positions = [0] * max(WRITERS)

    async def append(store: SQLStore, number: int) -> int:
        for _ in range(APPENDS):
            positions[number] += 1
            store.append(entry_of(number, positions[number]), NODE)
        await store.flush()
        return APPENDS

    return append


def _id(number: int) -> str:
    return f"sh_{number:026d}"


def session_of(number: int) -> SessionRecord:
    now = time.time()
    return SessionRecord(
        id=_id(number),
        owner=LOCAL.key,
        status=Status.IDLE,
        created_at=now,
        used_at=now,
        status_at=now,
        node=NODE,
    )


def entry_of(number: int, position: int) -> JournalRecord:
    now = time.time()
    return JournalRecord.model_construct(
        session_id=_id(number),
        seq=position,
        kind=JournalKind.CALL,
        epoch=1,
        service="counter",
        tool="inc",
        status="ok",
        run=None,
        role=None,
        operation_id=None,
        started_at=now,
        ended_at=now,
        generation=1,
        request={"text": TEXT},
        result={"content": ["1"], "is_error": False},
        error=None,
    )
