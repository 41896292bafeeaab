"""Shares of sessions in the store."""

from __future__ import annotations

from typing import Any

from store_making import Sessions

from statehold.sessions.lifecycle import Status
from statehold.sessions.records import Grantee, GranteeKind, Principal, ShareRecord, ShareRights
from statehold.sessions.store import Store

VIEW, USE = ShareRights.VIEW, ShareRights.USE
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


async def test_a_share_gives_its_rights_to_its_grantee_until_it_expires(store: Store) -> None:
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


async def test_a_share_replaces_that_of_the_same_grantee(store: Store) -> None:
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


async def test_shared_sessions_are_listed_and_shares_are_deleted_with_them(store: Store) -> None:
    sessions = Sessions(store)
    await sessions.make("sh_a", owner=":ada", used_at=1.0, status=Status.CLOSED, node=None)
    await sessions.make("sh_b", owner=":eve", used_at=2.0)
    for session_id, grantee, rights in (("sh_a", CREW, VIEW), ("sh_b", BEN, USE)):
        assert await store.access.put_share(share(session_id, grantee, rights=rights), most=10)
    digests = [BEN.digest, CREW.digest]
    found = await store.access.shared_sessions(digests, 50.0, 10)
    assert [(record.id, rights) for record, rights in found] == [("sh_b", USE), ("sh_a", VIEW)]
    assert [record.id for record, _ in await store.access.shared_sessions(digests, 50.0, 1)] == [
        "sh_b"
    ]
    assert await store.access.shared_sessions(digests, 100.0, 10) == []
    assert await store.purge("sh_a")
    assert [record.id for record, _ in await store.access.shared_sessions(digests, 50.0, 10)] == [
        "sh_b"
    ]
    assert await store.check() == []
