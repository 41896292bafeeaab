"""Lists of sessions, sessions that are due, and purged ones."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from store_making import NODE, Sessions, entry

from statehold.sessions.errors import (
    InvalidArgument,
)
from statehold.sessions.lifecycle import Status
from statehold.sessions.records import (
    SessionFilter,
    SnapshotRecord,
)
from statehold.sessions.store import Write
from statehold.sessions.store.sql import SQLStore


def write(session_id: str, epoch: int = 1, node: str = NODE, **parts: Any) -> Write:
    return Write(session_id, node, epoch, **parts)


async def test_a_full_last_page_has_no_cursor(store: SQLStore, sessions: Sessions) -> None:
    for number in range(4):
        await sessions.make(f"sh_{number}")
    page, cursor = await store.list_sessions(SessionFilter(limit=4))
    assert (len(page), cursor) == (4, None)
    assert await store.list_sessions(SessionFilter(owner="nobody")) == ([], None)


async def test_a_list_is_filtered_by_every_field(store: SQLStore, sessions: Sessions) -> None:
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
async def test_an_invalid_cursor_is_refused(store: SQLStore, cursor: str) -> None:
    with pytest.raises(InvalidArgument):
        await store.list_sessions(SessionFilter(cursor=cursor))


async def test_ownerless_sessions_come_due_the_most_overdue_first(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", node=None, due_at=20.0, status=Status.PAUSED)
    await sessions.make("sh_b", node=None, due_at=10.0, status=Status.CLOSED)
    await sessions.make("sh_c", due_at=5.0)
    await sessions.make("sh_d", node=None)
    await sessions.make("sh_e", node=None, due_at=30.0)
    assert [s.id for s in await store.due(20.0)] == ["sh_b", "sh_a"]
    assert [s.id for s in await store.due(20.0, limit=1)] == ["sh_b"]
    assert await store.next_due() == 10.0


async def test_purging_leaves_nothing_of_a_closed_session(
    store: SQLStore, sessions: Sessions
) -> None:
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
