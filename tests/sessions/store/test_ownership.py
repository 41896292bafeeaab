"""Nodes, claims, and the sessions of a dead node."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from store_making import NODE, OTHER, Sessions, entry, node_record, session_record

from statehold.sessions.errors import (
    SessionFenced,
)
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import (
    BindingRecord,
    BindingStatus,
    JournalKind,
    SessionFilter,
    Timeouts,
)
from statehold.sessions.store import Write
from statehold.sessions.store.sql import SQLStore


def write(session_id: str, epoch: int = 1, node: str = NODE, **parts: Any) -> Write:
    return Write(session_id, node, epoch, **parts)


async def test_nodes_are_listed_until_they_are_dead(store: SQLStore) -> None:
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
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", "browser", state={"n": 1}, node=None, status=Status.PAUSED)
    loaded = await store.claim("sh_a", NODE, 5.0)
    assert loaded is not None
    assert (loaded.session.node, loaded.session.epoch) == (NODE, 2)
    assert (loaded.session.used_at, loaded.session.status) == (1.0, Status.PAUSED)
    assert [b.service for b in loaded.bindings] == ["browser"]
    assert loaded.state.value == {"n": 1}
    assert loaded.last_seq == 0
    await store.write(write("sh_a", 2, journal=[entry("sh_a", 4, epoch=2)]))
    again = await store.claim("sh_a", NODE, 6.0)
    assert again is not None
    assert (again.session.epoch, again.last_seq) == (3, 4)


async def test_a_session_of_a_living_node_cannot_be_claimed(
    store: SQLStore, sessions: Sessions
) -> None:
    await store.join(node_record(OTHER))
    await sessions.make("sh_a")
    assert await store.claim("sh_a", OTHER, 5.0) is None
    record = await store.get("sh_a")
    assert record is not None
    assert (record.node, record.epoch) == (NODE, 1)


async def test_only_a_node_that_is_up_can_claim(store: SQLStore, sessions: Sessions) -> None:
    await sessions.make("sh_a", node=None)
    assert await store.claim("sh_a", "n_unknown", 5.0) is None
    await store.declare_dead(NODE)
    assert await store.claim("sh_a", NODE, 5.0) is None


@pytest.mark.parametrize("status", [Status.CLOSING, Status.CLOSED])
async def test_a_session_that_is_not_open_cannot_be_claimed(
    store: SQLStore, sessions: Sessions, status: Status
) -> None:
    await sessions.make("sh_a", node=None, status=status)
    assert await store.claim("sh_a", NODE, 5.0) is None


@pytest.mark.parametrize("known", [True, False])
async def test_claiming_from_a_dead_node_takes_what_it_left_as_lost(
    store: SQLStore, sessions: Sessions, known: bool
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
    with pytest.raises(SessionFenced):
        await store.write(write("sh_a", node=OTHER))


async def test_claims_that_come_together_have_one_winner(
    store: SQLStore, sessions: Sessions
) -> None:
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
    record = await store.get("sh_a")
    assert record is not None
    assert won == [record.node]
    assert record.epoch == 2


async def test_adopting_pauses_what_a_dead_node_left_open(
    store: SQLStore, sessions: Sessions
) -> None:
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
    records = {s.id: s for s in (await store.list_sessions(SessionFilter()))[0]}
    idle = records["sh_idle"]
    assert (idle.node, idle.epoch, idle.status, idle.status_at) == (None, 2, Status.PAUSED, 50.0)
    assert idle.due_at == 150.0
    assert records["sh_error"].due_at is None
    assert records["sh_ending"].due_at == 60.0
    assert (records["sh_kept"].node, records["sh_kept"].epoch) == (None, 2)
    assert (records["sh_kept"].due_at, records["sh_kept"].status_at) == (33.0, 1.0)
    assert records["sh_other"] == session_record("sh_other", epoch=1)
    assert records["sh_free"] == session_record("sh_free", epoch=1, node=None)
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


async def test_an_heir_owns_what_dead_nodes_left_with_connections(
    store: SQLStore, sessions: Sessions
) -> None:
    """No other node can claim it: only the next process on the same machine can resume its connections."""
    await store.join(node_record(OTHER))
    for session_id in ("sh_open", "sh_lost", "sh_own"):
        node = NODE if session_id == "sh_own" else OTHER
        await sessions.make(session_id, "a", node=node)
        binding = BindingRecord(session_id=session_id, service="a", status=BindingStatus.OPEN)
        binding.resume_token = None if session_id == "sh_lost" else "token"
        await store.write(write(session_id, node=node, bindings=[binding]))
    await store.join(node_record("n_heir"))
    assert sorted(await store.adopt([OTHER], 50.0, "n_heir")) == ["sh_lost", "sh_open"]
    assert await store.claim("sh_open", NODE, 51.0) is None
    claimed = await store.claim("sh_open", "n_heir", 51.0)
    assert claimed is not None
    assert (claimed.session.status, claimed.bindings[0].status) == (Status.PAUSED, "kept")
    assert await store.claim("sh_lost", NODE, 51.0) is not None
    assert await store.claim("sh_own", "n_heir", 51.0) is None


async def test_adopting_closes_what_was_being_created_or_closed(
    store: SQLStore, sessions: Sessions
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
