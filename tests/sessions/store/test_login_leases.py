"""Leases of logins in the store: one session at a time has a login, and one that lost it writes no more."""

from __future__ import annotations

from dataclasses import replace

import anyio

from statehold.sessions.store.base import NEEDS_HUMAN, OK, RENEWING, UNCHECKED, LoginRecord
from statehold.sessions.store.sql import SQLStore


def login(name: str = "shop", **values: object) -> LoginRecord:
    first = LoginRecord(
        owner=":local",
        name=name,
        kind="browser",
        site="https://shop.test",
        issuer="",
        state=OK,
        since=1.0,
        sealed=b"first",
    )
    return replace(first, **values)  # pyright: ignore[reportArgumentType]


async def test_one_session_at_a_time_has_a_login(store: SQLStore) -> None:
    winners: list[str] = []

    async def take(session: str) -> None:
        if await store.logins.take(login(), session, 10.0, 70.0) is not None:
            winners.append(session)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(take, f"session {number}")
    assert len(winners) == 1
    (held,) = await store.logins.held_by(winners[0])
    assert (held.sealed, held.lease_ends_at, held.used_at) == (b"first", 70.0, 10.0)


async def test_a_session_that_lost_its_lease_writes_no_more(store: SQLStore) -> None:
    first = await store.logins.take(login(), "one", 10.0, 70.0)
    assert first is not None
    assert await store.logins.take(login(), "two", 69.0, 130.0) is None
    second = await store.logins.take(login(), "two", 70.0, 130.0)
    assert second is not None
    assert not await store.logins.write_value(first, b"late")
    assert not await store.logins.give_back(replace(first, sealed=b"late"))
    assert await store.logins.write_value(second, b"new")
    # The lease ran out without being given back, so the value may be old.
    assert second.state == UNCHECKED
    found = await store.logins.find(":local", "shop")
    assert found is not None
    assert (found.sealed, found.session) == (b"new", "two")


async def test_a_login_that_was_given_back_is_free_and_keeps_its_state(store: SQLStore) -> None:
    first = await store.logins.take(login(), "one", 10.0, 70.0)
    assert first is not None
    assert await store.logins.give_back(replace(first, sealed=b"new"))
    (last,) = await store.logins.held_by("one")
    assert last.lease_ends_at == 0.0
    second = await store.logins.take(login(), "two", 11.0, 71.0)
    assert second is not None
    assert (second.sealed, second.state) == (b"new", OK)
    assert await store.logins.held_by("one") == []


async def test_a_session_takes_again_what_it_has_in_another_process(store: SQLStore) -> None:
    first = await store.logins.take(login(), "one", 10.0, 70.0)
    again = await store.logins.take(login(), "one", 20.0, 80.0)
    assert first is not None
    assert again is not None
    assert again.state == UNCHECKED
    assert not await store.logins.write_value(first, b"late")


async def test_leases_are_extended_but_for_those_that_were_lost(store: SQLStore) -> None:
    kept = await store.logins.take(login("kept"), "one", 10.0, 70.0)
    lost = await store.logins.take(login("lost"), "one", 10.0, 70.0)
    assert kept is not None
    assert lost is not None
    await store.logins.take(login("lost"), "two", 70.0, 130.0)
    await store.logins.extend([kept, lost], 90.0)
    standings = await store.logins.standings([kept, lost])
    assert standings[":local", "kept"] == (kept.version, "one", OK)
    assert standings[":local", "lost"].session == "two"
    found = [await store.logins.find(":local", name) for name in ("kept", "lost")]
    assert [each.lease_ends_at for each in found if each] == [90.0, 130.0]


async def test_a_login_that_needs_its_person_or_is_of_another_kind_is_not_lent(
    store: SQLStore,
) -> None:
    await store.logins.put(login(state=NEEDS_HUMAN))
    assert await store.logins.take(login(), "one", 10.0, 70.0) is None
    await store.logins.put(login("tracker", kind="oauth"))
    assert await store.logins.take(login("tracker"), "one", 10.0, 70.0) is None


async def test_taking_back_asks_the_session_that_has_the_login(store: SQLStore) -> None:
    assert not await store.logins.take_back(":local", "shop")
    held = await store.logins.take(login(), "one", 10.0, 70.0)
    assert held is not None
    assert await store.logins.take_back(":local", "shop")
    standings = await store.logins.standings([held])
    assert standings[":local", "shop"] == (held.version, "", OK)
    # It stays lent until the session has given it back, or the lease ends.
    assert await store.logins.take(login(), "two", 11.0, 71.0) is None
    assert await store.logins.give_back(replace(held, session=""))
    assert await store.logins.take(login(), "two", 12.0, 72.0) is not None


async def test_a_check_leaves_a_login_to_the_session_that_had_it(store: SQLStore) -> None:
    held = await store.logins.take(login(), "one", 10.0, 70.0)
    assert held is not None
    assert await store.logins.take(login(), None, 11.0, 71.0) is None
    assert await store.logins.give_back(held)
    checked = await store.logins.take(login(), None, 12.0, 72.0)
    assert checked is not None
    assert (checked.session, checked.used_at) == ("one", 10.0)
    assert await store.logins.take(login(), "one", 13.0, 73.0) is None
    found = replace(checked, state=RENEWING, reason="it ended", renewals="12", checked_at=None)
    assert await store.logins.record_check(found)
    assert await store.logins.give_back(found)
    assert not await store.logins.record_check(found)
    assert await store.logins.take(login(), "one", 14.0, 74.0) is None
    again = await store.logins.take(login(), None, 14.0, 74.0)
    assert again is not None
    assert (again.state, again.reason, again.renewals) == (RENEWING, "it ended", "12")
    assert await store.logins.take_back(":local", "shop")
    assert await store.logins.give_back(replace(again, state=UNCHECKED))
    assert await store.logins.held_by("one") == []
    last = await store.logins.take(login(), "one", 15.0, 75.0)
    assert last is not None
    assert last.in_check == 0


async def test_a_check_can_be_asked_for_also_where_a_person_is_needed(store: SQLStore) -> None:
    assert not await store.logins.request_check(":local", "shop", "browser")
    await store.logins.put(login(state=NEEDS_HUMAN, checked_at=1.0))
    assert await store.logins.request_check(":local", "shop", "browser")
    await store.logins.put(login("tracker", kind="oauth"))
    assert not await store.logins.request_check(":local", "tracker", "browser")
    [row] = await store.logins.overview("browser")
    assert (row.state, row.checked_at, row.sealed) == (UNCHECKED, None, b"")
