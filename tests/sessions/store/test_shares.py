"""Shares of sessions in the store."""

from __future__ import annotations

from typing import Any

import pytest
from store_making import Sessions
from support.selection import matrix

from statehold.sessions.lifecycle import Status
from statehold.sessions.records import Grantee, GranteeKind, Principal, ShareRecord, ShareRights
from statehold.sessions.store.sql import SQLStore

VIEW, USE = ShareRights.VIEW, ShareRights.USE
ALL = tuple(Status)
BEN = Grantee.principal(Principal(issuer="home", subject="ben"))
CREW = Grantee(kind=GranteeKind.GROUP, issuer="home", name="ben")


def share(session_id: str, grantee: Grantee = BEN, **values: Any) -> ShareRecord:
    defaults: dict[str, Any] = {
        "rights": VIEW,
        "created_by": ":ada",
        "created_at": 10.0,
        "expires_at": 100.0,
    }
    return ShareRecord(session_id=session_id, grantee=grantee, **{**defaults, **values})


async def test_a_share_gives_its_rights_to_its_grantee_until_it_expires(store: SQLStore) -> None:
    await Sessions(store).make("sh_a", owner=":ada")
    assert await store.access.put_share(share("sh_a"), most=10)
    for session_id, grantees, rights, now, owner in (
        ("sh_a", [BEN], [VIEW, USE], 99.0, ":ada"),
        ("sh_a", [CREW, BEN], [VIEW, USE], 99.0, ":ada"),
        ("sh_a", [BEN], [VIEW, USE], 100.0, None),
        ("sh_a", [BEN], [USE], 99.0, None),
        ("sh_a", [CREW], [VIEW, USE], 99.0, None),
        ("sh_a", [], [VIEW, USE], 99.0, None),
        ("sh_b", [BEN], [VIEW, USE], 99.0, None),
    ):
        digests = [grantee.digest for grantee in grantees]
        assert await store.access.shared_owner(session_id, digests, rights, now) == owner


async def test_a_share_replaces_that_of_the_same_grantee(store: SQLStore) -> None:
    await Sessions(store).make("sh_a", owner=":ada")
    later = share("sh_a", rights=USE, created_at=20.0)
    assert await store.access.put_share(share("sh_a"), most=1)
    assert await store.access.put_share(later, most=1)
    assert await store.access.shares("sh_a", 50.0) == [later]
    assert not await store.access.put_share(share("sh_a", CREW, created_at=30.0), most=1)
    assert await store.access.put_share(
        share("sh_a", CREW, created_at=100.0, expires_at=200.0), most=1
    )
    assert [each.grantee for each in await store.access.shares("sh_a", 150.0)] == [CREW]
    assert not await store.access.delete_share("sh_a", BEN.digest)
    assert await store.access.delete_share("sh_a", CREW.digest)
    assert await store.access.shares("sh_a", 150.0) == []


async def test_shared_sessions_are_listed_and_shares_are_deleted_with_them(store: SQLStore) -> None:
    sessions = Sessions(store)
    await sessions.make("sh_a", owner=":ada", used_at=1.0, status=Status.CLOSED, node=None)
    await sessions.make("sh_b", owner=":eve", used_at=2.0)
    for session_id, grantee, rights in (("sh_a", CREW, VIEW), ("sh_b", BEN, USE)):
        assert await store.access.put_share(share(session_id, grantee, rights=rights), most=10)
    digests = [BEN.digest, CREW.digest]
    found = await store.access.shared_sessions(digests, ALL, 50.0, 10)
    assert [(record.id, rights) for record, rights in found] == [("sh_b", USE), ("sh_a", VIEW)]
    assert [
        record.id for record, _ in await store.access.shared_sessions(digests, ALL, 50.0, 1)
    ] == ["sh_b"]
    assert await store.access.shared_sessions(digests, ALL, 100.0, 10) == []
    assert await store.purge("sh_a")
    assert [
        record.id for record, _ in await store.access.shared_sessions(digests, ALL, 50.0, 10)
    ] == ["sh_b"]
    assert await store.check() == []


@pytest.mark.parametrize("strangers", matrix(1, 3))
async def test_many_shares_of_others_hide_none_of_a_neighbour(
    store: SQLStore, strangers: int
) -> None:
    sessions = Sessions(store)
    await sessions.make("sh_ada", owner=":ada", used_at=1.0)
    await sessions.make("sh_done", owner=":ada", used_at=9.0, status=Status.CLOSED, node=None)
    ids = ["sh_ada", "sh_done"]
    for number in range(10):
        ids.append(f"sh_{number}")
        await sessions.make(ids[-1], owner=f":eve{number % strangers}", used_at=2.0 + number)
    for session_id in ids:
        assert await store.access.put_share(share(session_id), most=10)
    for limit in (strangers + 1, 6):
        found = await store.access.shared_sessions([BEN.digest], [Status.IDLE], 50.0, limit)
        assert found[-1][0].id == "sh_ada"
        assert found[0][0].id == "sh_9"
        assert len(found) == limit
