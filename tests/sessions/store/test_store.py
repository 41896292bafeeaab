"""The contract of every store, on every database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from store_making import NODE, OTHER, MakeStore, Sessions, entry, node_record

from statehold.sessions.errors import (
    InvalidArgument,
    SessionFenced,
    StoreUnavailable,
)
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import (
    BindingRecord,
    BindingStatus,
    SnapshotRecord,
    StateRecord,
    Timeouts,
)
from statehold.sessions.store import Write
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.validation import label


def write(session_id: str, epoch: int = 1, node: str = NODE, **parts: Any) -> Write:
    return Write(session_id, node, epoch, **parts)


async def test_a_created_session_comes_back_as_it_was(store: SQLStore, sessions: Sessions) -> None:
    """A created session reads the same from every database."""
    created = await sessions.make(
        "sh_a",
        "browser",
        "shell",
        name="login",
        namespace="team",
        reason="because",
        closed_at=3.5,
        due_at=9.25,
        timeouts=Timeouts(idle=1.5, paused=0, lifetime=7),
        lifetime_ends_at=8.0,
        metadata={"ä": [1, None, {"x": True}]},
        parent="sh_parent",
    )
    assert await store.get("sh_a") == created.model_copy(update={"epoch": 1})
    assert [b.service for b in await store.bindings("sh_a")] == ["browser", "shell"]
    assert await store.counts() == {"idle": 1}


async def test_numbers_and_text_of_a_state_come_back_exact(
    store: SQLStore, sessions: Sessions
) -> None:
    value: dict[str, Any] = {
        "big": 2**63 - 1,
        "huge": 2**200,
        "float": 0.1,
        "half": "\ud83d",
        "nul": "a\u0000b",
        "deep": [[[{}]]],
    }
    await sessions.make("sh_a", state=value)
    state = await store.state("sh_a")
    assert state is not None
    assert state.value == value
    assert isinstance(state.value["huge"], int)


async def test_words_of_others_are_stored_with_any_content(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    # The ids of runs and operations and roles come without control characters: see `label()`.
    plain = label("run", " \\ ' \" % %s :x ${y} \U0001f600 ")
    text = f"broken\0{plain}\n\t\x1f"
    bound = BindingRecord(session_id="sh_a", service="x", last_error=text)
    await store.write(
        write(
            "sh_a",
            session={"reason": text, "metadata": {text: text}},
            bindings=[bound],
            journal=[entry("sh_a", 1, error=text, request={text: text}, run=plain, role=plain)],
        )
    )
    shown = text.replace("\0", "\ufffd")
    record = await store.get("sh_a")
    assert record is not None
    assert (record.reason, record.metadata) == (shown, {text: text})
    assert [b.last_error for b in await store.bindings("sh_a")] == [shown]
    [noted] = await store.journal("sh_a")
    assert (noted.error, noted.request) == (shown, {text: text})
    assert (noted.run, noted.role) == (plain, plain)


async def test_names_that_only_look_alike_are_different(
    store: SQLStore, sessions: Sessions
) -> None:
    alike = ["name", "Name", "n\u00e4me", "na\u0308me", "name ", " name", "n\u0430me", "NAME"]
    for number, name in enumerate(alike):
        await sessions.make(f"sh_{number}", name=name)
    for number, name in enumerate(alike):
        record = await store.find("local", "", name)
        assert record is not None
        assert (record.id, record.name) == (f"sh_{number}", name)


async def test_the_usage_of_an_owner_includes_closed_sessions(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", "browser", owner="ann")
    before = await store.usage("ann")
    data = SnapshotRecord(
        session_id="sh_a", service="browser", seq=1, taken_at=2.0, epoch=1, data=b"\0" * 50_000
    )
    await store.write(write("sh_a", snapshots=[data]))
    await store.write(write("sh_a", session={"status": Status.CLOSED}))
    assert 0 < before < 10_000
    assert await store.usage("ann") - before >= 50_000
    assert await store.ids("ann") == ["sh_a"]
    assert (await store.usage("bob"), await store.ids("bob")) == (0, [])


async def test_a_search_for_an_impossible_value_is_refused(store: SQLStore) -> None:
    with pytest.raises(InvalidArgument):
        await store.get("\ud83d")
    with pytest.raises(InvalidArgument):
        await store.claim("\ud83d", NODE, 2.0)
    with pytest.raises(InvalidArgument):
        await store.journal("sh_a", after=2**70)
    assert await store.get("sh_a") is None


# Writes and their fence.


async def test_a_write_changes_every_part_of_a_session(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a", "browser", metadata={"keep": 1})
    bound = BindingRecord(
        session_id="sh_a",
        service="shell",
        status=BindingStatus.OPEN,
        generation=3,
        told_generation=2,
        config_hash="c",
        last_error="e",
        since=4.0,
    )
    carried = StateRecord(
        session_id="sh_a", version=1, value={"n": 1}, json_schema={"type": "object"}
    )
    saved = SnapshotRecord(
        session_id="sh_a", service="shell", seq=1, taken_at=5.0, epoch=1, data=b"\x00secret"
    )
    noted = entry(
        "sh_a", 1, service="shell", status="ok", request={"a": 2**70}, result=[1], run="r"
    )
    await store.write(
        write(
            "sh_a",
            session={
                "status": Status.PAUSED,
                "timeouts": Timeouts(idle=5),
                "services": ["browser", "shell"],
                "due_at": 77.0,
            },
            bindings=[bound],
            state=carried,
            snapshots=[saved],
            journal=[noted],
        )
    )
    record = await store.get("sh_a")
    assert record is not None
    assert record.status is Status.PAUSED
    assert record.timeouts == Timeouts(idle=5)
    assert record.services == ["browser", "shell"]
    assert record.metadata == {"keep": 1}
    assert (await store.bindings("sh_a"))[1] == bound
    assert await store.state("sh_a") == carried
    assert await store.snapshot("sh_a", "shell") == saved
    assert await store.journal("sh_a") == [noted]


@pytest.mark.parametrize(
    "parts",
    [
        {"session": {"epoch": 9}},
        {"session": {"id": "sh_b"}},
        {"session": {"colour": "red"}},
        {"session": {"node": OTHER}},
        {"session": {"timeouts": {"idle": -1}}},
        {"state": StateRecord(session_id="sh_b")},
        {"bindings": [BindingRecord(session_id="sh_b", service="x")]},
        {"journal": [entry("sh_b", 1)]},
    ],
)
async def test_a_write_that_makes_no_sense_is_refused_at_once(
    store: SQLStore, sessions: Sessions, parts: dict[str, Any]
) -> None:
    await sessions.make("sh_a")
    with pytest.raises(ValueError, match=r"write|Timeouts"):
        await store.write(write("sh_a", **parts))


@pytest.mark.parametrize(("node", "epoch"), [(NODE, 0), (NODE, 2), (OTHER, 1)])
async def test_a_write_is_refused_without_the_right_node_and_epoch(
    store: SQLStore, sessions: Sessions, node: str, epoch: int
) -> None:
    await sessions.make("sh_a")
    parts: dict[str, Any] = {
        "session": {"used_at": 9.0},
        "bindings": [BindingRecord(session_id="sh_a", service="x")],
        "state": StateRecord(session_id="sh_a", version=5),
        "snapshots": [
            SnapshotRecord(session_id="sh_a", service="x", seq=1, taken_at=1, epoch=1, data=b"")
        ],
        "journal": [entry("sh_a", 1)],
    }
    with pytest.raises(SessionFenced):
        await store.write(write("sh_a", epoch, node, **parts))
    record = await store.get("sh_a")
    assert record is not None
    assert record.used_at == 1.0
    assert await store.bindings("sh_a") == []
    assert await store.snapshot("sh_a", "x") is None
    assert await store.journal("sh_a") == []
    state = await store.state("sh_a")
    assert state is not None
    assert state.version == 0


async def test_unbinding_and_binding_again_in_one_write_begins_afresh(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", "one")
    old = SnapshotRecord(session_id="sh_a", service="one", seq=1, taken_at=1, epoch=1, data=b"x")
    await store.write(write("sh_a", snapshots=[old]))
    fresh = BindingRecord(session_id="sh_a", service="one", since=8.0)
    await store.write(write("sh_a", unbind=["one"], bindings=[fresh]))
    assert await store.bindings("sh_a") == [fresh]
    assert await store.snapshot("sh_a", "one") is None


async def test_the_last_two_snapshots_of_a_binding_are_kept(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", "one", "two")
    for seq in range(1, 5):
        saved = [
            SnapshotRecord(session_id="sh_a", service=s, seq=seq, taken_at=1, epoch=1, data=b"x")
            for s in ("one", "two")
        ]
        await store.write(write("sh_a", snapshots=saved[: 1 if seq > 2 else 2]))
    one, two = await store.snapshot("sh_a", "one"), await store.snapshot("sh_a", "two")
    assert one is not None
    assert two is not None
    assert (one.seq, two.seq) == (4, 2)
    assert await _snapshot_seqs(store, "one") == [3, 4]
    assert await _snapshot_seqs(store, "two") == [1, 2]


async def _snapshot_seqs(store: SQLStore, service: str) -> Sequence[int]:
    """Count by taking the newest away: there is no other way to see the second."""
    from sqlalchemy import Connection, select

    from statehold.sessions.store.schema import snapshot

    def look(connection: Connection) -> list[int]:
        rows = connection.execute(select(snapshot.c.seq).where(snapshot.c.service == service))
        return sorted(row[0] for row in rows)

    assert isinstance(store, SQLStore)
    return await store._connections.read(look)  # pyright: ignore[reportPrivateUsage]


# The journal.


async def test_an_entry_of_a_lost_session_is_left_out_silently(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    store.append(entry("sh_a", 1, epoch=7), NODE)
    store.append(entry("sh_a", 2), OTHER)
    store.append(entry("sh_a", 3), NODE)
    await store.flush()
    assert [e.seq for e in await store.journal("sh_a")] == [3]


# The store itself.


async def test_a_closed_store_refuses_everything(make_store: MakeStore) -> None:
    async with make_store() as store:
        await store.join(node_record(NODE))
    with pytest.raises(StoreUnavailable):
        await store.get("sh_a")
    with pytest.raises(StoreUnavailable):
        await store.write(write("sh_a"))
    store.append(entry("sh_a", 1), NODE)
    assert store.dropped_entries == 1
    await store.__aexit__(None, None, None)
