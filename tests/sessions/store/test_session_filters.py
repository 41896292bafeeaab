"""Finding sessions by the labels, names and metadata that their callers gave."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from store_making import NODE, Sessions, node_record
from support.selection import matrix

from statehold.sessions.records import LABELS, SessionFilter, SessionOrder, SummaryRecord
from statehold.sessions.store import Write, session_queries
from statehold.sessions.store.sql import SQLStore


async def listed(store: SQLStore, **wanted: Any) -> list[str]:
    """Return the ids on all pages."""
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = await store.list_sessions(SessionFilter(cursor=cursor, **wanted))
        ids += [record.id for record in page]
        if cursor is None:
            return ids


CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"n": 1}, ["sh_a"]),
    ({"n": 1.0}, ["sh_b"]),
    ({"n": True}, ["sh_c"]),
    ({"n": None}, ["sh_d"]),
    ({"n": "1"}, ["sh_e"]),
    ({"n": {"deep": [1]}}, ["sh_f"]),
    ({"n": {}}, []),
    ({'a" ]"%_': "x"}, ["sh_f", "sh_e"]),
    ({'a" ]"%_': "x", "n": "1"}, ["sh_e"]),
    ({"deep": [1]}, []),
    ({"none": None}, []),
]


async def test_metadata_is_found_by_value_not_by_text(store: SQLStore, sessions: Sessions) -> None:
    """The given keys are compared for equality, and values of different kinds are not equal."""
    values: list[Any] = [1, 1.0, True, None, "1", {"deep": [1]}]
    for number, (key, value) in enumerate(zip("abcdef", values, strict=True)):
        odd = {'a" ]"%_': "x"} if key in "ef" else {}
        await sessions.make(f"sh_{key}", metadata={"n": value, **odd}, used_at=float(number))
    for metadata, expected in CASES:
        assert await listed(store, metadata=metadata) == expected, metadata


async def test_labels_and_times_choose(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a", user_id="ann", agent_id="buyer", used_at=1.0)
    await sessions.make("sh_b", user_id="ann", team_id="blue", used_at=2.0)
    await sessions.make("sh_c", user_id="ANN", workflow_id="w/1", used_at=3.0)
    await sessions.make("sh_d", owner="somebody", user_id="ann", used_at=4.0)
    assert await listed(store, owner="local", labels={"user_id": "ann"}) == ["sh_b", "sh_a"]
    assert await listed(store, labels={"user_id": "ann", "agent_id": "buyer"}) == ["sh_a"]
    assert await listed(store, labels={"workflow_id": "w/1"}) == ["sh_c"]
    assert await listed(store, labels={"team_id": "bl"}) == []
    assert await listed(store, owner="local", updated_since=2.0) == ["sh_c", "sh_b"]
    assert await listed(store, owner="local", updated_since=3.5) == []
    both = SessionFilter(owner="local", labels={"user_id": "ann"}, limit=1)
    page, cursor = await store.list_sessions(both)
    assert page[0].labels == {"user_id": "ann", "team_id": "blue"}
    assert cursor is not None
    page, cursor = await store.list_sessions(both.model_copy(update={"cursor": cursor}))
    assert ([record.id for record in page], cursor) == (["sh_a"], None)


@pytest.mark.parametrize("order", matrix(*SessionOrder))
async def test_an_order_the_other_way_round_has_the_same_pages(
    store: SQLStore, sessions: Sessions, order: SessionOrder
) -> None:
    """Sessions with the same time, or without a name, are on one page only."""
    for number, name in enumerate(["b", None, "a", None, "c"]):
        used, created = float(number // 2), float(number // 3)
        await sessions.make(f"sh_{number}", name=name, used_at=used, created_at=created)
    forward = await listed(store, order=order, limit=2)
    assert len(set(forward)) == 5
    assert await listed(store, order=order, limit=2, reverse=True) == forward[::-1]


async def test_a_text_is_sought_in_what_callers_wrote_only(
    store: SQLStore, sessions: Sessions
) -> None:
    """The search looks into names, labels, metadata and summaries, never into states or names of fields."""
    await sessions.make("sh_a", name="Straße kaufen", used_at=1.0)
    await sessions.make("sh_b", metadata={"needle": "hay", "list": [{"x": "STRASSE"}]}, used_at=2.0)
    await sessions.make("sh_c", team_id="strasse", state={"needle": "needle"}, used_at=3.0)
    await sessions.make("sh_d", used_at=4.0)
    summary = SummaryRecord(
        session_id="sh_d", text="ok", topics=["strasse 5"], updated_at=4.0, through_seq=0
    )
    await store.write(Write("sh_d", NODE, 1, summary=summary))
    assert await listed(store, query="STRASSE") == ["sh_d", "sh_c", "sh_b", "sh_a"]
    assert await listed(store, query="needle") == []
    assert await listed(store, query="%") == []


async def test_a_text_is_found_where_json_escapes_it(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a", metadata={"said": 'He said "Ünder\\over"\n'}, used_at=1.0)
    await sessions.make("sh_b", metadata={"said": 'He "did"'}, name="Ünder", used_at=2.0)
    for text in ('"ünder\\OVER"\n', "over", 'd "ü'):
        assert await listed(store, query=text) == ["sh_a"], text
    assert await listed(store, query="ünder") == ["sh_b", "sh_a"]
    for text in ("said", "\\n", '\\"', ':"He'):
        assert await listed(store, query=text) == (["sh_a"] if text == "said" else []), text


async def test_a_text_in_no_session_is_sought_by_few_statements(tmp_path: Path) -> None:
    """The database sorts all sessions for each statement."""
    ran: list[str] = []

    def note(_c: Connection, _cursor: object, text: str, *_: object) -> None:
        if "FROM session" in text:
            ran.append(text)

    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        sessions = Sessions(store)
        for number in range(60):
            await sessions.make(f"sh_{number:02}", metadata={"escaped": "\\"})
        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert await listed(store, query="none", limit=2) == []
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    assert len(ran) == 3


async def test_sqlite_reads_only_the_sessions_that_may_have_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_queries, "READ_LIMIT", 3)
    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        sessions = Sessions(store)
        for number in range(20):
            await sessions.make(f"sh_{number:02}", name="Ärger" if number == 2 else None)
        page, cursor = await store.list_sessions(SessionFilter(query="äRGER"))
    assert [record.id for record in page] == ["sh_02"]
    assert cursor is None


async def test_a_page_looks_at_so_many_sessions_only(
    store: SQLStore, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_queries, "READ_LIMIT", 7)
    monkeypatch.setattr(session_queries, "CHUNK", 3)
    for number in range(20):
        await sessions.make(f"sh_{number:02}", metadata={"even": number % 2 == 0})
    page, cursor = await store.list_sessions(SessionFilter(metadata={"even": True}))
    assert [record.id for record in page] == ["sh_18", "sh_16", "sh_14"]
    assert cursor is not None
    assert len(await listed(store, metadata={"even": True}, limit=2)) == 10
    page, cursor = await store.list_sessions(SessionFilter(metadata={"even": None}))
    assert page == []
    assert cursor is not None
    assert await listed(store, metadata={"even": None}) == []


async def test_a_page_of_much_metadata_ends_early(store: SQLStore, sessions: Sessions) -> None:
    for number in range(70):
        await sessions.make(f"sh_{number:02}", metadata={"x": "x" * 16_000})
    page, cursor = await store.list_sessions(SessionFilter(limit=100))
    assert len(page) == session_queries.PAGE_BYTES // 16_008
    assert cursor is not None
    assert len(await listed(store, limit=100)) == 70


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize(
    "more", matrix({"namespace": "", "metadata": {"n": 1}}, {}), ids=["picky", ""]
)
async def test_labels_are_found_through_their_indexes(
    tmp_path: Path, label: str, more: dict[str, Any]
) -> None:
    """No session of another user is read, and the sessions come in their order."""
    wanted: dict[str, Any] = {"owner": "local", "labels": {label: "ann"}, **more}
    ann: dict[str, Any] = {label: "ann", "metadata": {"n": 1}}
    ben: dict[str, Any] = {**ann, label: "ben"}
    ran: list[tuple[str, Any]] = []

    def note(_c: Connection, _cursor: object, text: str, parameters: Any, *_: object) -> None:
        if "FROM session" in text and label in text.partition("WHERE")[2]:
            ran.append((text, parameters))

    async with SQLStore.sqlite(tmp_path) as store:
        await store.join(node_record(NODE))
        sessions = Sessions(store)
        for session in ("sh_a", "sh_b"):
            await sessions.make(session, **ann)
        await sessions.make("sh_c", **ben)
        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert await listed(store, **wanted, limit=1) == ["sh_b", "sh_a"]
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    # The first page, and one that a cursor continues.
    assert len(ran) == 2
    with sqlite3.connect(tmp_path / "statehold.db") as connection:
        for text, parameters in ran:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters).fetchall()
            first, *rest = [row[3] for row in plan]
            assert first.startswith(
                f"SEARCH session USING INDEX session_{label} (owner=? AND {label}=?"
            )
            # Sessions of one and the same moment are sorted by their ids.
            assert rest == ["USE TEMP B-TREE FOR RIGHT PART OF ORDER BY"]
    connection.close()


async def test_a_list_is_sorted_by_use_creation_or_name_over_its_pages(
    store: SQLStore, sessions: Sessions
) -> None:
    for number, name in enumerate(["b", None, "a", "b2", None]):
        await sessions.make(
            f"sh_{number}", name=name, used_at=float(number % 3), created_at=float(-number)
        )
    orders = {
        "used": ["sh_2", "sh_4", "sh_1", "sh_3", "sh_0"],
        "created": ["sh_0", "sh_1", "sh_2", "sh_3", "sh_4"],
        "name": ["sh_1", "sh_4", "sh_2", "sh_0", "sh_3"],
    }
    for order, expected in orders.items():
        for limit in (1, 2, 100):
            assert await listed(store, order=order, limit=limit) == expected, (order, limit)
