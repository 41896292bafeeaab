"""Histories as a registry shows them, and the digest that is made of them without a model."""

from __future__ import annotations

import base64
from typing import Any

import anyio
import orjson
import pytest
from support.counting import Counting, Nobody
from support.engine import Build
from support.selection import matrix

from statehold.sessions.actions.history import FIRST_READ, PAGE_BYTES
from statehold.sessions.calls.request import Request
from statehold.sessions.journal.digest import Material, digest, pages_of, topics_of
from statehold.sessions.journal.redaction import Redactor
from statehold.sessions.live.snapshots import encode_snapshot
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, HistoryFilter, JournalCounts
from statehold.sessions.services import Snapshot

TALLY = JournalCounts(
    calls={f"tool_{n}": {"ok": n + 1, "error": 1} for n in range(500)},
    messages={"user": 3},
    transitions=1,
    runs=2,
    entries=900,
    first_at=1.0,
    last_at=2.0,
    last_seq=900,
)


def test_a_digest_is_bounded_stable_and_without_secrets() -> None:
    """The digest says only what the records hold."""
    text = "word " * 50_000
    long = f"password=hunter2 {text}"
    call: dict[str, Any] = {"seq": 1, "at": "t", "tool": "x", "status": "error", "error": text}
    call["arguments"] = {"a": text}
    material = Material(
        status="idle",
        name="n" * 128,
        services=[{"service": "s", "status": "lost", "generation": 1, "last_error": long}] * 10,
        calls=[call] * 5,
        errors=[call] * 3,
        notes=[{"content": text}] * 200,
        state_version=1,
        state_keys=[f"key {n} {'k' * 300}" for n in range(1000)],
        pages=[{"title": long, "url": "http://ada:hunter2@x/"}] * 500,
    )
    first = digest(material, TALLY, Redactor())
    assert digest(material, TALLY, Redactor()) == first
    assert len(orjson.dumps(first)) < 64_000
    assert len(first["text"]) <= 4000
    assert "hunter2" not in str(first)


def test_topics_are_the_words_said_most_often() -> None:
    texts = ["The invoice of March", "that invoice and the report", "Report! Which report?"]
    assert topics_of(texts) == ["report", "invoice", "march"]
    assert topics_of([]) == []
    picture = base64.b64encode(bytes(range(256)) * 8).decode()
    assert topics_of([f"a drawing data:image/png;base64,{picture}", picture]) == [
        *("base64", "data", "drawing"),
    ]


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        ({"tabs": [{"url": "http://a/", "title": "A"}]}, [{"title": "A", "url": "http://a/"}]),
        ({"tabs": [{"url": ""}, {"title": "x"}, 5]}, []),
        ({"tabs": 5}, []),
        ({"count": 1}, []),
    ],
)
def test_the_pages_of_a_browser_are_read_from_its_snapshot(data: Any, pages: Any) -> None:
    assert pages_of(encode_snapshot(Snapshot(data))) == pages


async def test_the_open_pages_of_a_session_are_in_its_digest(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def snapshot(_: Any) -> Snapshot:
        return Snapshot({"tabs": [{"url": "http://a.example/", "title": "Invoices"}]})

    monkeypatch.setattr("support.counting.Counter.snapshot", snapshot)
    async with build(Counting(pause="snapshot")) as home:
        session = (await home.create()).id
        await home.call(session)
        await home.registry.pause(LOCAL, session)
        _, summary = await home.registry.history.summary(LOCAL, session)
        assert summary["digest"]["pages"] == [{"title": "Invoices", "url": "http://a.example/"}]
        assert summary["digest"]["topics"] == ["invoices"]
        assert await home.status(session) == "paused"


async def test_a_note_is_use_of_a_session(build: Build) -> None:
    async with build() as home:
        session = await home.create()
        home.clock.advance(100)
        await home.registry.history.page(LOCAL, session.id, HistoryFilter())
        assert session.idle_since == home.clock.now() - 100
        await home.registry.history.note(LOCAL, session.id, "user", "hello")
        assert session.idle_since == home.clock.now()


async def test_a_page_has_a_size_and_the_next_one_goes_on(build: Build) -> None:
    async with build() as home:
        session, history = (await home.create()).id, home.registry.history
        for number in range(12):
            await history.note(LOCAL, session, "user", f"{number} {'word ' * 10_000}")
        words: list[str] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            _, entries, cursor = await history.page(
                LOCAL, session, HistoryFilter(limit=1000), cursor=cursor
            )
            assert len(orjson.dumps(entries)) < PAGE_BYTES * 1.3
            words = [entry.get("content", "").split(" ")[0] for entry in entries] + words
            pages += 1
        assert pages > 2
        assert [text for text in words if text] == [str(number) for number in range(12)]


@pytest.mark.parametrize(
    ("count", "characters"), matrix((150, 30_000), (300, 10), (64, 10), (65, 10), (130, 3000))
)
async def test_a_page_reads_little_more_than_it_shows(
    build: Build, count: int, characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build() as home:
        session, history = (await home.create()).id, home.registry.history
        for number in range(count):
            await history.note(LOCAL, session, "user", f"{number} {'x' * characters}")
        read, reading = list[int](), home.store.history

        async def read_counted(session_id: str, history_filter: HistoryFilter) -> Any:
            rows = await reading(session_id, history_filter)
            read.append(len(rows))
            return rows

        monkeypatch.setattr(home.store, "history", read_counted)
        newest = HistoryFilter(roles=["user"], limit=1000)
        seen: list[str] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            read.clear()
            _, entries, cursor = await history.page(LOCAL, session, newest, cursor=cursor)
            assert sum(read) <= 2 * len(entries) + FIRST_READ
            seen = [entry["content"].split(" ")[0] for entry in entries] + seen
            pages += 1
        assert seen == [str(number) for number in range(count)]
        _, entries, cursor = await history.page(
            LOCAL, session, newest.model_copy(update={"limit": count - 1})
        )
        assert len(entries) <= count - 1
        assert cursor is not None


async def test_a_call_in_flight_is_shown_as_started(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        request = Request(LOCAL, session, "counter", "hold", {}, operation_id="op")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(home.router.call, request, Nobody())
            await home.counter.holding.wait()
            _, entries, _ = await home.registry.history.page(LOCAL, session, HistoryFilter(limit=1))
            assert (entries[0]["tool"], entries[0]["status"]) == ("hold", "started")
            home.counter.let_go.set()
        _, entries, _ = await home.registry.history.page(LOCAL, session, HistoryFilter(limit=1))
        assert entries[0]["status"] == "ok"


async def test_the_journal_of_calls_can_be_off(build: Build) -> None:
    async with build(policy=Policy(journal_calls=False)) as home:
        session = (await home.create()).id
        await home.call(session)
        await home.router.call(
            Request(LOCAL, session, "counter", "inc", {}, operation_id="op"), Nobody()
        )
        _, entries, _ = await home.registry.history.page(LOCAL, session, HistoryFilter())
        assert [entry["kind"] for entry in entries] == ["transition", "call"]
