"""The contract of every store, on every database."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from store_making import NODE, OTHER, MakeStore, Sessions, entry, node_record, session_record

from statehold.sessions.errors import (
    Fenced,
    InvalidArgument,
    NameTaken,
    SessionLimit,
    StoreUnavailable,
)
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import (
    BindingRecord,
    BindingStatus,
    JournalKind,
    SessionFilter,
    SnapshotRecord,
    StateRecord,
    Timeouts,
)
from statehold.sessions.store import Store, Write
from statehold.sessions.validation import label


def write(session_id: str, epoch: int = 1, node: str = NODE, **parts: Any) -> Write:
    return Write(session_id, node, epoch, **parts)


async def test_a_created_session_comes_back_as_it_was(store: Store, sessions: Sessions) -> None:
    """A created session reads the same from every database (AM-44, AS-01, SC-01, SC-22)."""
    made = await sessions.make(
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
    assert await store.get("sh_a") == made.model_copy(update={"epoch": 1})
    assert [b.service for b in await store.bindings("sh_a")] == ["browser", "shell"]
    assert await store.counts() == {"idle": 1}


async def test_numbers_and_text_of_a_state_come_back_exact(
    store: Store, sessions: Sessions
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
    found = await store.state("sh_a")
    assert found is not None
    assert found.value == value
    assert isinstance(found.value["huge"], int)


async def test_words_of_others_are_stored_whatever_is_in_them(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    # The ids of runs and operations and roles come without control characters: see `label()`.
    plain = label("run", " \\ ' \" % %s :x ${y} \U0001f600 ")
    said = f"broken\0{plain}\n\t\x1f"
    bound = BindingRecord(session_id="sh_a", service="x", last_error=said)
    await store.write(
        write(
            "sh_a",
            session={"reason": said, "metadata": {said: said}},
            bindings=[bound],
            journal=[entry("sh_a", 1, error=said, request={said: said}, run=plain, role=plain)],
        )
    )
    shown = said.replace("\0", "\ufffd")
    found = await store.get("sh_a")
    assert found is not None
    assert (found.reason, found.metadata) == (shown, {said: said})
    assert [b.last_error for b in await store.bindings("sh_a")] == [shown]
    [noted] = await store.journal("sh_a")
    assert (noted.error, noted.request) == (shown, {said: said})
    assert (noted.run, noted.role) == (plain, plain)


async def test_names_that_only_look_alike_are_different(store: Store, sessions: Sessions) -> None:
    alike = ["name", "Name", "n\u00e4me", "na\u0308me", "name ", " name", "n\u0430me", "NAME"]
    for number, name in enumerate(alike):
        await sessions.make(f"sh_{number}", name=name)
    for number, name in enumerate(alike):
        found = await store.find("local", "", name)
        assert found is not None
        assert (found.id, found.name) == (f"sh_{number}", name)


async def test_what_an_owner_stores_is_counted_closed_sessions_included(
    store: Store, sessions: Sessions
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


async def test_nothing_is_found_of_an_id_that_is_not_there(store: Store) -> None:
    assert await store.get("sh_x") is None
    assert await store.state("sh_x") is None
    assert await store.snapshot("sh_x", "browser") is None
    assert await store.bindings("sh_x") == []
    assert await store.journal("sh_x") == []
    assert await store.claim("sh_x", NODE, 2.0) is None
    assert not await store.purge("sh_x")
    assert await store.next_due() is None
    with pytest.raises(Fenced):
        await store.write(write("sh_x"))


async def test_an_id_is_never_used_twice(store: Store, sessions: Sessions) -> None:
    """Covers AS-03, SC-29."""
    await sessions.make("sh_a")
    with pytest.raises(InvalidArgument):
        await sessions.make("sh_a")


async def test_what_no_database_can_hold_is_refused_when_it_is_looked_for(store: Store) -> None:
    with pytest.raises(InvalidArgument):
        await store.get("\ud83d")
    with pytest.raises(InvalidArgument):
        await store.claim("\ud83d", NODE, 2.0)
    with pytest.raises(InvalidArgument):
        await store.journal("sh_a", after=2**70)
    assert await store.get("sh_a") is None


# Names and limits.


async def test_a_name_is_taken_per_owner_and_namespace(store: Store, sessions: Sessions) -> None:
    await sessions.make("sh_a", name="login")
    await sessions.make("sh_b", name="login", owner="somebody")
    await sessions.make("sh_c", name="login", namespace="team")
    with pytest.raises(NameTaken):
        await sessions.make("sh_d", name="login")
    found = await store.find("local", "team", "login")
    assert found is not None
    assert found.id == "sh_c"
    assert await store.find("local", "", "other") is None
    assert await store.get("sh_d") is None


@pytest.mark.parametrize("status", [Status.CLOSING, Status.CLOSED])
async def test_a_session_gives_its_name_up_when_it_closes(
    store: Store, sessions: Sessions, status: Status
) -> None:
    await sessions.make("sh_a", name="login")
    await store.write(write("sh_a", session={"status": status}))
    assert await store.find("local", "", "login") is None
    await sessions.make("sh_b", name="login")
    found = await store.find("local", "", "login")
    assert found is not None
    assert found.id == "sh_b"
    old = await store.get("sh_a")
    assert old is not None
    assert old.name == "login"


async def test_sessions_without_a_name_do_not_collide(store: Store, sessions: Sessions) -> None:
    await sessions.make("sh_a")
    await sessions.make("sh_b")
    assert await store.counts() == {"idle": 2}


async def test_renaming_to_a_taken_name_is_refused_and_changes_nothing(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a", name="one")
    await sessions.make("sh_b", name="two")
    with pytest.raises(NameTaken):
        await store.write(write("sh_b", session={"name": "one", "used_at": 50.0}))
    found = await store.get("sh_b")
    assert found is not None
    assert (found.name, found.used_at) == ("two", 1.0)
    await store.write(write("sh_b", session={"name": "three"}))
    found = await store.find("local", "", "three")
    assert found is not None
    assert found.id == "sh_b"


async def test_an_owner_has_no_more_open_sessions_than_allowed(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a", per_owner=2)
    await sessions.make("sh_b", per_owner=2)
    await sessions.make("sh_c", owner="somebody", per_owner=2)
    with pytest.raises(SessionLimit):
        await sessions.make("sh_d", per_owner=2)
    await store.write(write("sh_a", session={"status": Status.CLOSED}))
    await sessions.make("sh_d", per_owner=2)


async def test_a_limit_holds_for_creates_that_come_together(
    store: Store, sessions: Sessions
) -> None:
    refused: list[str] = []

    async def make(number: int) -> None:
        try:
            await sessions.make(f"sh_{number}", per_owner=5)
        except SessionLimit as error:
            refused.append(error.code)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(make, number)
    assert len(refused) == 15
    assert await store.counts() == {"idle": 5}


async def test_of_creates_of_one_name_that_come_together_one_wins(
    store: Store, sessions: Sessions
) -> None:
    won: list[int] = []

    async def make(number: int) -> None:
        try:
            await sessions.make(f"sh_{number}", name="same")
        except NameTaken:
            return
        won.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(make, number)
    assert len(won) == 1


# Writes and their fence.


async def test_a_write_changes_every_part_of_a_session(store: Store, sessions: Sessions) -> None:
    """Covers AS-68, SC-25."""
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
    found = await store.get("sh_a")
    assert found is not None
    assert found.status is Status.PAUSED
    assert found.timeouts == Timeouts(idle=5)
    assert found.services == ["browser", "shell"]
    assert found.metadata == {"keep": 1}
    assert (await store.bindings("sh_a"))[1] == bound
    assert await store.state("sh_a") == carried
    assert await store.snapshot("sh_a", "shell") == saved
    assert await store.journal("sh_a") == [noted]


async def test_plain_values_are_as_good_as_models(store: Store, sessions: Sessions) -> None:
    await sessions.make("sh_a")
    plain = {"status": "paused", "timeouts": {"idle": 3.0}, "metadata": {"a": 1}, "name": None}
    await store.write(write("sh_a", session=plain))
    found = await store.get("sh_a")
    assert found is not None
    assert (found.status, found.timeouts.idle, found.metadata) == (Status.PAUSED, 3.0, {"a": 1})


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
    store: Store, sessions: Sessions, parts: dict[str, Any]
) -> None:
    await sessions.make("sh_a")
    with pytest.raises(ValueError, match=r"write|Timeouts"):
        await store.write(write("sh_a", **parts))


@pytest.mark.parametrize(("node", "epoch"), [(NODE, 0), (NODE, 2), (OTHER, 1)])
async def test_a_write_is_refused_without_the_right_node_and_epoch(
    store: Store, sessions: Sessions, node: str, epoch: int
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
    with pytest.raises(Fenced):
        await store.write(write("sh_a", epoch, node, **parts))
    found = await store.get("sh_a")
    assert found is not None
    assert found.used_at == 1.0
    assert await store.bindings("sh_a") == []
    assert await store.snapshot("sh_a", "x") is None
    assert await store.journal("sh_a") == []
    state = await store.state("sh_a")
    assert state is not None
    assert state.version == 0


async def test_a_released_session_is_fenced_until_it_is_claimed_again(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    await store.write(write("sh_a", session={"node": None, "status": Status.PAUSED}))
    with pytest.raises(Fenced):
        await store.write(write("sh_a", session={"used_at": 2.0}))
    loaded = await store.claim("sh_a", NODE, 3.0)
    assert loaded is not None
    assert loaded.session.epoch == 2
    await store.write(write("sh_a", 2, session={"used_at": 4.0}))


async def test_unbinding_takes_the_binding_and_its_snapshots(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a", "one", "two")
    saved = [
        SnapshotRecord(session_id="sh_a", service=s, seq=1, taken_at=1, epoch=1, data=b"x")
        for s in ("one", "two")
    ]
    await store.write(write("sh_a", snapshots=saved))
    await store.write(write("sh_a", unbind=["one"]))
    assert [b.service for b in await store.bindings("sh_a")] == ["two"]
    assert await store.snapshot("sh_a", "one") is None
    assert await store.snapshot("sh_a", "two") == saved[1]


async def test_unbinding_and_binding_again_in_one_write_begins_afresh(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a", "one")
    old = SnapshotRecord(session_id="sh_a", service="one", seq=1, taken_at=1, epoch=1, data=b"x")
    await store.write(write("sh_a", snapshots=[old]))
    fresh = BindingRecord(session_id="sh_a", service="one", since=8.0)
    await store.write(write("sh_a", unbind=["one"], bindings=[fresh]))
    assert await store.bindings("sh_a") == [fresh]
    assert await store.snapshot("sh_a", "one") is None


async def test_the_last_two_snapshots_of_a_binding_are_kept(
    store: Store, sessions: Sessions
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


async def _snapshot_seqs(store: Store, service: str) -> Sequence[int]:
    """Count by taking the newest away: there is no other way to see the second."""
    from sqlalchemy import Connection, select

    from statehold.sessions.store import SQLStore
    from statehold.sessions.store.schema import snapshot

    def look(connection: Connection) -> list[int]:
        found = connection.execute(select(snapshot.c.seq).where(snapshot.c.service == service))
        return sorted(row[0] for row in found)

    assert isinstance(store, SQLStore)
    return await store._connections.read(look)  # pyright: ignore[reportPrivateUsage]


# The journal.


async def test_appended_entries_are_read_in_order_and_by_page(
    store: Store, sessions: Sessions
) -> None:
    """Entries are added, and none is written again (AS-09)."""
    await sessions.make("sh_a")
    for seq in range(1, 11):
        store.append(entry("sh_a", seq), NODE)
    await store.flush()
    assert [e.seq for e in await store.journal("sh_a")] == list(range(1, 11))
    assert [e.seq for e in await store.journal("sh_a", last=3)] == [8, 9, 10]
    assert [e.seq for e in await store.journal("sh_a", last=3, after=8)] == [9, 10]


async def test_an_entry_becomes_durable_without_being_waited_for(
    store: Store, sessions: Sessions
) -> None:
    """Covers SC-26."""
    await sessions.make("sh_a")
    store.append(entry("sh_a", 1), NODE)
    with anyio.fail_after(5):
        while not await store.journal("sh_a"):  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(0.005)


async def test_an_entry_is_completed_under_its_position(store: Store, sessions: Sessions) -> None:
    await sessions.make("sh_a")
    await store.write(write("sh_a", journal=[entry("sh_a", 1, operation_id="op")]))
    done = entry("sh_a", 1, operation_id="op", status="ok", ended_at=3.0, result={"n": 1})
    await store.write(write("sh_a", journal=[done]))
    assert await store.journal("sh_a") == [done]


async def test_an_entry_of_a_lost_session_is_left_out_silently(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a")
    store.append(entry("sh_a", 1, epoch=7), NODE)
    store.append(entry("sh_a", 2), OTHER)
    store.append(entry("sh_a", 3), NODE)
    await store.flush()
    assert [e.seq for e in await store.journal("sh_a")] == [3]


# Nodes and claims.


async def test_nodes_are_listed_until_they_are_dead(store: Store) -> None:
    await store.join(node_record(OTHER))
    assert {n.id for n in await store.nodes()} == {NODE, OTHER}
    assert (await store.nodes())[0] == node_record(NODE)
    assert await store.declare_dead(OTHER)
    assert not await store.declare_dead(OTHER)
    assert not await store.declare_dead("n_unknown")
    assert {n.id for n in await store.nodes()} == {NODE}
    await store.leave(NODE)
    assert await store.nodes() == []


async def test_a_claim_loads_the_session_and_raises_the_epoch(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a", "browser", state={"n": 1}, node=None, status=Status.PAUSED)
    loaded = await store.claim("sh_a", NODE, 5.0)
    assert loaded is not None
    assert (loaded.session.node, loaded.session.epoch) == (NODE, 2)
    assert (loaded.session.used_at, loaded.session.status) == (5.0, Status.PAUSED)
    assert [b.service for b in loaded.bindings] == ["browser"]
    assert loaded.state.value == {"n": 1}
    assert loaded.last_seq == 0
    await store.write(write("sh_a", 2, journal=[entry("sh_a", 4, epoch=2)]))
    again = await store.claim("sh_a", NODE, 6.0)
    assert again is not None
    assert (again.session.epoch, again.last_seq) == (3, 4)


async def test_a_session_of_a_living_node_cannot_be_claimed(
    store: Store, sessions: Sessions
) -> None:
    await store.join(node_record(OTHER))
    await sessions.make("sh_a")
    assert await store.claim("sh_a", OTHER, 5.0) is None
    found = await store.get("sh_a")
    assert found is not None
    assert (found.node, found.epoch) == (NODE, 1)


async def test_only_a_node_that_is_up_can_claim(store: Store, sessions: Sessions) -> None:
    await sessions.make("sh_a", node=None)
    assert await store.claim("sh_a", "n_unknown", 5.0) is None
    await store.declare_dead(NODE)
    assert await store.claim("sh_a", NODE, 5.0) is None


@pytest.mark.parametrize("status", [Status.CLOSING, Status.CLOSED])
async def test_a_session_that_is_not_open_cannot_be_claimed(
    store: Store, sessions: Sessions, status: Status
) -> None:
    await sessions.make("sh_a", node=None, status=status)
    assert await store.claim("sh_a", NODE, 5.0) is None


@pytest.mark.parametrize("known", [True, False])
async def test_claiming_from_a_dead_node_takes_what_it_left_as_lost(
    store: Store, sessions: Sessions, known: bool
) -> None:
    if known:
        await store.join(node_record(OTHER))
    await sessions.make("sh_a", "browser", node=OTHER)
    opened = BindingRecord(session_id="sh_a", service="browser", status=BindingStatus.OPEN)
    if known:
        await store.write(write("sh_a", node=OTHER, bindings=[opened]))
        await store.declare_dead(OTHER)
    loaded = await store.claim("sh_a", NODE, 5.0)
    assert loaded is not None
    assert loaded.session.node == NODE
    assert loaded.session.status is Status.PAUSED
    assert loaded.session.epoch == 3
    assert loaded.last_seq == 1
    if known:
        assert loaded.bindings[0].status is BindingStatus.LOST
    with pytest.raises(Fenced):
        await store.write(write("sh_a", node=OTHER))


async def test_claims_that_come_together_have_one_winner(store: Store, sessions: Sessions) -> None:
    names = [f"n_{number}" for number in range(20)]
    for name in names:
        await store.join(node_record(name))
    await sessions.make("sh_a", node=None)
    won: list[str] = []

    async def claim(node: str) -> None:
        if await store.claim("sh_a", node, 5.0) is not None:
            won.append(node)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(claim, name)
    found = await store.get("sh_a")
    assert found is not None
    assert won == [found.node]
    assert found.epoch == 2


# Sessions and calls of a dead node.


async def test_adopting_pauses_what_a_dead_node_left_open(store: Store, sessions: Sessions) -> None:
    await store.join(node_record(OTHER))
    timeouts = Timeouts(paused=100)
    await sessions.make("sh_idle", "a", "b", "c", node=OTHER, timeouts=timeouts)
    await sessions.make("sh_error", node=OTHER, status=Status.ERROR, timeouts=Timeouts(paused=0))
    await sessions.make("sh_kept", "a", node=OTHER, status=Status.PAUSED, due_at=33.0)
    await sessions.make("sh_ending", node=OTHER, timeouts=timeouts, lifetime_ends_at=60.0)
    await sessions.make("sh_other")
    await sessions.make("sh_free", node=None)

    def bound(session_id: str, service: str, status: BindingStatus) -> BindingRecord:
        return BindingRecord(session_id=session_id, service=service, status=status, generation=4)

    await store.write(
        write(
            "sh_idle",
            node=OTHER,
            bindings=[
                bound("sh_idle", "a", BindingStatus.OPEN),
                bound("sh_idle", "b", BindingStatus.FAILED),
            ],
            journal=[entry("sh_idle", 1), entry("sh_idle", 2)],
        )
    )
    kept = bound("sh_kept", "a", BindingStatus.KEPT)
    await store.write(write("sh_kept", node=OTHER, bindings=[kept]))

    adopted = await store.adopt([OTHER], 50.0)

    assert sorted(adopted) == ["sh_ending", "sh_error", "sh_idle", "sh_kept"]
    found = {s.id: s for s in (await store.list_sessions(SessionFilter()))[0]}
    idle = found["sh_idle"]
    assert (idle.node, idle.epoch, idle.status, idle.status_at) == (None, 2, Status.PAUSED, 50.0)
    assert idle.due_at == 150.0
    assert found["sh_error"].due_at is None
    assert found["sh_ending"].due_at == 60.0
    assert (found["sh_kept"].node, found["sh_kept"].epoch) == (None, 2)
    assert (found["sh_kept"].due_at, found["sh_kept"].status_at) == (33.0, 1.0)
    assert found["sh_other"] == session_record("sh_other", epoch=1)
    assert found["sh_free"] == session_record("sh_free", epoch=1, node=None)
    assert [b.status for b in await store.bindings("sh_idle")] == ["lost", "failed", "unopened"]
    assert (await store.bindings("sh_idle"))[0].generation == 4
    assert (await store.bindings("sh_kept"))[0].status is BindingStatus.LOST
    last = (await store.journal("sh_idle"))[-1]
    assert (last.seq, last.kind, last.epoch) == (3, JournalKind.TRANSITION, 2)
    assert last.started_at == 50.0
    assert last.request == {
        "code": "T20",
        "event": "adopted",
        "from": "idle",
        "to": "paused",
        "cause": "server_restart",
    }
    assert (await store.journal("sh_error"))[0].request["from"] == "error"
    assert await store.journal("sh_kept") == []
    assert [n.id for n in await store.nodes()] == [NODE]
    assert await store.adopt([OTHER], 51.0) == []


async def test_adopting_closes_what_was_being_created_or_closed(
    store: Store, sessions: Sessions
) -> None:
    await store.join(node_record(OTHER))
    await sessions.make("sh_new", "a", node=OTHER, status=Status.CREATING, name="login")
    await sessions.make("sh_old", node=OTHER, status=Status.CLOSING, reason="asked")
    assert await store.adopt([OTHER], 50.0) == []
    new, old = await store.get("sh_new"), await store.get("sh_old")
    assert new is not None
    assert old is not None
    for closed in (new, old):
        assert (closed.status, closed.node, closed.epoch) == (Status.CLOSED, None, 2)
        assert (closed.closed_at, closed.due_at) == (50.0, 50.0 + 604_800.0)
    assert (new.reason, old.reason) == ("server_restart", "asked")
    assert (await store.journal("sh_new"))[0].request["code"] == "T03"
    assert (await store.journal("sh_old"))[0].request["code"] == "T18"
    await sessions.make("sh_next", name="login")


async def test_adopting_takes_up_what_an_earlier_adopter_left_half_done(
    store: Store, sessions: Sessions
) -> None:
    await store.join(node_record(OTHER))
    await sessions.make("sh_a", node=OTHER)
    await store.declare_dead(OTHER)
    assert await store.adopt([], 50.0) == ["sh_a"]


async def test_the_writes_of_a_dead_node_are_refused(store: Store, sessions: Sessions) -> None:
    await store.join(node_record(OTHER))
    await sessions.make("sh_a", node=OTHER)
    await store.adopt([OTHER], 50.0)
    store.append(entry("sh_a", 9), OTHER)
    with pytest.raises(Fenced):
        await store.write(write("sh_a", node=OTHER))
    assert await store.claim("sh_a", OTHER, 51.0) is None
    assert [e.seq for e in await store.journal("sh_a")] == [1]


# Lists and time.


async def test_sessions_are_listed_newest_use_first_over_pages(
    store: Store, sessions: Sessions
) -> None:
    for number in range(25):
        await sessions.make(f"sh_{number:02}", used_at=float(number // 3))
    seen: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        page, cursor = await store.list_sessions(SessionFilter(limit=10, cursor=cursor))
        seen += [record.id for record in page]
        pages += 1
    assert pages == 3
    assert seen == [f"sh_{number:02}" for number in reversed(range(25))]


async def test_a_full_last_page_has_no_cursor(store: Store, sessions: Sessions) -> None:
    for number in range(4):
        await sessions.make(f"sh_{number}")
    page, cursor = await store.list_sessions(SessionFilter(limit=4))
    assert (len(page), cursor) == (4, None)
    assert await store.list_sessions(SessionFilter(owner="nobody")) == ([], None)


async def test_a_list_is_filtered_by_every_field(store: Store, sessions: Sessions) -> None:
    await sessions.make("sh_a", name="Login_1", namespace="team", status=Status.PAUSED)
    await sessions.make("sh_b", name="login_2", owner="somebody")
    await sessions.make("sh_c", name="100%", used_at=9.0)

    async def listed(**wanted: Any) -> set[str]:
        page, _ = await store.list_sessions(SessionFilter(**wanted))
        return {record.id for record in page}

    assert await listed(owner="somebody") == {"sh_b"}
    assert await listed(namespace="") == {"sh_b", "sh_c"}
    assert await listed(name_prefix="Login") == {"sh_a"}
    assert await listed(name_prefix="100%") == {"sh_c"}
    assert await listed(name_prefix="%") == set()
    assert await listed(statuses=[Status.PAUSED, Status.ERROR]) == {"sh_a"}
    assert await listed(statuses=[]) == set()
    assert await listed(owner="local", namespace="team", name_prefix="L") == {"sh_a"}


@pytest.mark.parametrize("cursor", ["x", "!!", "", base64.b64encode(b"[1]").decode(), "ä"])
async def test_a_cursor_of_nobody_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidArgument):
        await store.list_sessions(SessionFilter(cursor=cursor))


async def test_ownerless_sessions_come_due_the_most_overdue_first(
    store: Store, sessions: Sessions
) -> None:
    await sessions.make("sh_a", node=None, due_at=20.0, status=Status.PAUSED)
    await sessions.make("sh_b", node=None, due_at=10.0, status=Status.CLOSED)
    await sessions.make("sh_c", due_at=5.0)
    await sessions.make("sh_d", node=None)
    await sessions.make("sh_e", node=None, due_at=30.0)
    assert [s.id for s in await store.due(20.0)] == ["sh_b", "sh_a"]
    assert [s.id for s in await store.due(20.0, limit=1)] == ["sh_b"]
    assert await store.next_due() == 10.0


async def test_purging_leaves_nothing_of_a_closed_session(store: Store, sessions: Sessions) -> None:
    await sessions.make("sh_a", "browser", node=None, status=Status.PAUSED)
    loaded = await store.claim("sh_a", NODE, 2.0)
    assert loaded is not None
    saved = SnapshotRecord(
        session_id="sh_a", service="browser", seq=1, taken_at=1, epoch=1, data=b"x"
    )
    await store.write(write("sh_a", 2, snapshots=[saved], journal=[entry("sh_a", 1, epoch=2)]))
    assert not await store.purge("sh_a")
    await store.write(write("sh_a", 2, session={"status": Status.CLOSED, "node": None}))
    assert await store.purge("sh_a")
    assert not await store.purge("sh_a")
    assert await store.get("sh_a") is None
    assert await store.state("sh_a") is None
    assert await store.bindings("sh_a") == []
    assert await store.snapshot("sh_a", "browser") is None
    assert await store.journal("sh_a") == []
    assert await store.check() == []


# The store itself.


async def test_a_closed_store_refuses_everything(make_store: MakeStore) -> None:
    async with make_store() as store:
        await store.join(node_record(NODE))
    with pytest.raises(StoreUnavailable):
        await store.get("sh_a")
    with pytest.raises(StoreUnavailable):
        await store.write(write("sh_a"))
    store.append(entry("sh_a", 1), NODE)
    assert store.dropped == 1
    await store.__aexit__(None, None, None)


async def test_closing_writes_what_was_written_behind(make_store: MakeStore) -> None:
    async with make_store() as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a")
        store.append(entry("sh_a", 1), NODE)
    assert store.dropped == 0


async def test_a_sound_store_has_nothing_wrong(store: Store, sessions: Sessions) -> None:
    await sessions.make("sh_a", "browser")
    assert await store.check() == []
