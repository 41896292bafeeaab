"""The first page of a list of 10,000 sessions, and pages of a timeline of 100,000 entries, read over HTTP."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import anyio

from statehold.sessions.ids import new_id
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import (
    LOCAL,
    JournalKind,
    JournalRecord,
    SessionRecord,
    StateRecord,
)
from statehold.sessions.store import JournalLimits, Write
from statehold.sessions.store.sql import SQLStore

from ..plan import Plan
from ..report import Cell, Row, Target
from ..samples import median, quantile, undisturbed
from .serving import ConsoleClient, operator, serving

BOUND_MS, BOUND_KB = 200.0, 50.0
AT_ONCE: Final = 500
FEW: Final = 3000
"""One in this many sessions has a text that few have."""
LIMIT: Final = 60
"""Sessions of a page, as the page of the console asks for."""
_CITIES: Final = ("Malmö", "Graz", "Porto", "Gent", "Turku")
_DAY: Final = 86_400.0
_NODE: Final = "filling"


@dataclass(frozen=True, slots=True)
class Question:
    """A request for a page. `words` is its query."""

    name: str
    path: str


SESSIONS: Final = tuple(
    Question(name, f"/sessions?limit={LIMIT}{words}")
    for name, words in (
        ("by use", ""),
        ("by creation", "&sort=created"),
        ("by name", "&sort=name"),
        ("paused", "&status=paused"),
        ("failed, one in a hundred", "&status=error"),
        ("closed", "&status=closed"),
        ("text in every second", f"&query={quote('refund')}"),
        ("text in few", f"&query={quote('Zürich')}"),
        ("text in none", "&query=none+of+them"),
        ("text in few, by name", f"&query={quote('Zürich')}&sort=name"),
    )
)


async def measure(plan: Plan) -> tuple[list[Row], list[Target]]:
    """Return the rows of the lists and of the timeline, with the targets of each."""
    folder = plan.folder / "console-lists"
    longest = await _fill(folder / "data", plan.listed, plan.entries)
    async with serving(folder) as server, operator(server.data, server.url) as client:
        questions = [
            *((f"{plan.listed:,} sessions", question) for question in SESSIONS),
            *((f"timeline of {plan.entries:,}", question) for question in _pages(longest, plan)),
        ]
        rows = [
            await _read(client, where, question, plan.page_reads) for where, question in questions
        ]
    return rows, list(_targets(rows))


def _pages(session_id: str, plan: Plan) -> list[Question]:
    path = f"/sessions/{session_id}/timeline?limit=100"
    return [
        Question("the newest", path),
        Question("in the middle", f"{path}&before={plan.entries // 2}"),
        Question("the oldest", f"{path}&before=101"),
    ]


async def _read(client: ConsoleClient, where: str, question: Question, times: int) -> Row:
    """Return the time and the size of a page, after one that is not counted."""
    waits: list[float] = []
    size = shown = 0
    with undisturbed():
        for _ in range(times + 1):
            began = time.perf_counter()
            response = await client.send("GET", question.path)
            waits.append(time.perf_counter() - began)
            content: Any = response.json()
            assert response.status_code == 200, content
            size = len(response.content)
            shown = len(content.get("sessions", content.get("entries", ())))
    del waits[0]
    return {
        "of": where,
        "page": question.name,
        "shown": shown,
        "KB": size / 1000,
        "p50": median(waits) * 1e3,
        "p95": quantile(waits, 0.95) * 1e3,
        "times": times,
    }


def _targets(rows: list[Row]) -> Generator[Target]:
    for where in dict.fromkeys(str(row["of"]) for row in rows):
        pages = [row for row in rows if row["of"] == where]
        slowest, largest = (max(_number(row[name]) for row in pages) for name in ("p95", "KB"))
        yield Target(f"console: {where}, the slowest page, p95", slowest, BOUND_MS, "ms")
        yield Target(f"console: {where}, the largest page", largest, BOUND_KB, "KB")


def _number(cell: Cell) -> float:
    assert isinstance(cell, float)
    return cell


async def _fill(data: Path, count: int, entries: int) -> str:
    """Store sessions, and return the id of one with a long journal."""
    await anyio.Path(data).mkdir(parents=True, mode=0o700)
    limits = JournalLimits(entries=entries * 2)
    async with SQLStore.sqlite(data, limits=limits) as store:
        for start in range(0, count, AT_ONCE):
            async with anyio.create_task_group() as tasks:
                for number in range(start, min(count, start + AT_ONCE)):
                    tasks.start_soon(_create, store, number)
        session = _session(count).model_copy(update={"node": _NODE})
        await store.create(session, StateRecord(session_id=session.id), [], per_owner=0)
        for start in range(1, entries + 1, 1000):
            batch = [_entry(session.id, seq) for seq in range(start, start + 1000)]
            await store.write(Write(session.id, _NODE, 1, journal=batch))
        await store.write(Write(session.id, _NODE, 1, session={"node": None}))
    return session.id


async def _create(store: SQLStore, number: int) -> None:
    session = _session(number)
    await store.create(session, StateRecord(session_id=session.id), [], per_owner=0)


def _session(number: int) -> SessionRecord:
    now = time.time()
    status = Status.PAUSED
    if number % 100 == 7:
        status = Status.ERROR
    elif number % 5 == 3:
        status = Status.CLOSED
    city = "Zürich" if number % FEW == 11 else _CITIES[number % len(_CITIES)]
    topic = "Refund" if number % 2 else "Delivery"
    return SessionRecord(
        id=new_id(),
        owner=LOCAL.key,
        name=f"order {number * 7919 % 100_003}",
        status=status,
        created_at=now - number * 7.0,
        # In another order than that of creation.
        used_at=now - number * 7919 % 10_007,
        status_at=now,
        due_at=now + _DAY,
        closed_at=now if status is Status.CLOSED else None,
        lifetime_ends_at=now + 7 * _DAY,
        metadata={
            "purpose": f"{topic} of order {number}, which the customer asked for by mail",
            "customer": {"city": city, "tier": number % 4},
            "ticket": f"T-{number:06}",
        },
        services=["browser", "counter"],
    )


def _entry(session_id: str, seq: int) -> JournalRecord:
    began = time.time() - 3600 + seq / 100
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.CALL,
        epoch=1,
        service="browser",
        tool="browser_click",
        status="ok" if seq % 50 else "failed",
        run=None,
        role=None,
        operation_id=None,
        started_at=began,
        ended_at=began + 0.05,
        generation=1,
        request={"target": f"e{seq}", "element": "Add to the cart"},
        result={"content": ["- button: Add to the cart\n" * 6], "is_error": False},
        error=None if seq % 50 else "The element is not on the page.",
    )
