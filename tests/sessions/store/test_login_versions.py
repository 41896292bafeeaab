"""The versions of logins, by which a process that lost a login, or its lease, writes no more."""

from __future__ import annotations

from dataclasses import replace

from statehold.sessions.store.base import LoginRecord
from statehold.sessions.store.sql import SQLStore

FIRST = LoginRecord(
    owner="ada", name="notes", kind="oauth", site="", issuer="", state="ok", since=1e9, sealed=b"1"
)


async def test_a_login_that_was_forgotten_does_not_come_back_over_a_new_one(
    store: SQLStore,
) -> None:
    logins = store.logins
    await logins.put(FIRST)
    former = await logins.find("ada", "notes")
    assert former is not None
    assert await logins.delete("ada", "notes")
    await logins.put(replace(FIRST, since=FIRST.since + 1, sealed=b"2", version=0))
    assert not await logins.lease("ada", "notes", former.version, 2e9, 2e9 + 60)
    assert not await logins.renew(former, b"3", None)
    assert not await logins.end(former, "its token has ended", 2e9)
    present = await logins.find("ada", "notes")
    assert present is not None
    assert (present.sealed, present.state) == (b"2", "ok")


async def test_the_former_holder_of_a_lease_does_not_end_that_of_the_next(store: SQLStore) -> None:
    logins, version = store.logins, FIRST.version
    await logins.put(FIRST)
    assert await logins.lease("ada", "notes", version, 2e9, 2e9 + 60)
    assert await logins.lease("ada", "notes", version + 1, 2e9 + 60, 2e9 + 120)
    assert not await logins.release(replace(FIRST, version=version + 1))
    assert not await logins.renew(replace(FIRST, version=version + 1), b"2", None)
    present = await logins.find("ada", "notes")
    assert present is not None
    assert (present.sealed, present.lease_ends_at) == (b"1", 2e9 + 120)
