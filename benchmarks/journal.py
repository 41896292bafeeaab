"""(g) The cost of the journal and of its facts per call, and the time to read a long one."""

from __future__ import annotations

import random
import time
from contextlib import AsyncExitStack
from dataclasses import replace

from statehold.sessions.records import HistoryFilter, JournalKind, JournalRecord, StateRecord
from statehold.sessions.store import JournalLimits, Write
from statehold.sessions.store.sql import SQLStore

from .hop import Result, Scenario, in_turns
from .plan import Era, North, Plan
from .report import Row, Table, Target
from .route import open_route
from .samples import median, quantile, undisturbed
from .store import NODE, session_of

ON, NO_FACTS, OFF = "statehold", "facts off", "journal off"
LATENCY, CPU, FACTS_CPU = 1.05, 1.10, 1.03
LONG = 100_000
LAST_MS = 5.0
ROUNDS, CALLS = 3, 4
"""Factors over the numbers of other parts: the difference to measure is a few hundredths."""
READS = 200


async def measure(plan: Plan) -> Table:
    table = Table(
        "(g) journal: on against off, in ms and us of CPU per call, of the gateway and with the counter; reading in ms"
    )
    random_order = random.Random(1)
    longer = replace(
        plan,
        rounds=plan.rounds * ROUNDS,
        calls=plan.calls * CALLS,
        scenario_seconds=plan.scenario_seconds * CALLS,
    )
    for north in plan.norths:
        for era in plan.eras:
            async with AsyncExitStack() as stack:
                folder = plan.folder / f"journal-{north}-{era}"
                routes = [
                    await stack.enter_async_context(open_route(name, north, era, folder / name))
                    for name in (ON, NO_FACTS, OFF)
                ]
                for scenario in _scenarios(longer):
                    results = await in_turns(routes, scenario, longer, random_order)
                    _compare(table, north, era, scenario, results)
    await _reading(table, plan)
    return table


def _scenarios(plan: Plan) -> list[Scenario]:
    return [
        Scenario("small", 1, "inc", {}, plan.calls),
        Scenario("small", 8, "inc", {}, plan.calls * 2),
        Scenario("4 KiB", 1, "big", {"kib": 4}, plan.calls),
    ]


def _compare(
    table: Table, north: North, era: Era, scenario: Scenario, results: dict[str, Result]
) -> None:
    on, off = results[ON], results[OFF]
    p50 = {name: quantile(result.latencies, 0.5) for name, result in results.items()}
    p10 = {name: quantile(result.latencies, 0.1) for name, result in results.items()}
    alone = {name: median(result.gateway) for name, result in results.items()}
    row: Row = {
        "over": north,
        "era": era,
        "result": scenario.size,
        "at once": scenario.concurrency,
        "p10 on": round(p10[ON] * 1e3, 3),
        "p10 off": round(p10[OFF] * 1e3, 3),
        "p50 on": round(p50[ON] * 1e3, 3),
        "p50 off": round(p50[OFF] * 1e3, 3),
        "gateway CPU on": round(alone[ON] * 1e6, 1),
        "gateway CPU off": round(alone[OFF] * 1e6, 1),
        "x gateway CPU": round(alone[ON] / alone[OFF], 2),
        "gateway CPU no facts": round(alone[NO_FACTS] * 1e6, 1),
        "x facts": round(alone[ON] / alone[NO_FACTS], 3),
        "CPU on": round(on.cpu * 1e6, 1),
        "CPU off": round(off.cpu * 1e6, 1),
        "calls": sum(len(result.latencies) for result in results.values()),
    }
    table.rows.append(row)
    if scenario.concurrency == 1:
        where = f"{north} {era}, {scenario.size}"
        table.targets += [
            Target(f"p50 with the journal ({where})", p50[ON] / p50[OFF], LATENCY, "x"),
            Target(f"CPU with the journal ({where})", on.cpu / off.cpu, CPU, "x"),
            Target(
                f"gateway CPU with facts ({where})", alone[ON] / alone[NO_FACTS], FACTS_CPU, "x"
            ),
        ]


async def _reading(table: Table, plan: Plan) -> None:
    folder = plan.folder / "journal-long"
    async with SQLStore.sqlite(folder, limits=JournalLimits(entries=LONG * 2)) as store:
        session = session_of(0)
        await store.create(session, StateRecord(session_id=session.id), [], per_owner=0)
        for start in range(1, LONG + 1, 1000):
            entries = [_entry(session.id, seq) for seq in range(start, start + 1000)]
            await store.write(Write(session.id, NODE, 1, journal=entries))
        for what, filters in (
            ("last 20", HistoryFilter(limit=20)),
            ("last 20 calls of a rare tool", HistoryFilter(limit=20, tools=["rare"])),
            ("last 20 of no run", HistoryFilter(limit=20, runs=["none"])),
        ):
            waits: list[float] = []
            with undisturbed():
                for _ in range(READS if what == "last 20" else READS // 10):
                    began = time.perf_counter()
                    await store.history(session.id, filters)
                    waits.append(time.perf_counter() - began)
            p50 = quantile(waits, 0.5) * 1e3
            table.notes.append(f"{what} of {LONG:,} entries: {p50:.2f} ms at the median")
            if what == "last 20":
                table.targets.append(Target(f"{what} of {LONG:,} entries", p50, LAST_MS, "ms"))


def _entry(session_id: str, seq: int) -> JournalRecord:
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.CALL,
        epoch=1,
        service="counter",
        tool="rare" if seq % 10_000 == 0 else "inc",
        status="ok",
        run=None,
        role=None,
        operation_id=None,
        started_at=float(seq),
        ended_at=seq + 0.5,
        generation=1,
        request={"n": 1, "text": "x" * 300},
        result={"content": ["x" * 200], "is_error": False},
        error=None,
    )
