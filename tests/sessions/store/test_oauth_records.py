"""Logins of the authorization server in the store."""

from __future__ import annotations

import anyio

from statehold.sessions.store.people.credentials import OAuthRecord
from statehold.sessions.store.sql import SQLStore


def record(digest: str, secret: str = "first", expires_at: float = 100.0) -> OAuthRecord:
    return OAuthRecord(digest=digest, secret=secret, document="{}", expires_at=expires_at)


async def test_a_record_is_added_once(store: SQLStore) -> None:
    assert await store.access.add_oauth(record("one"))
    assert not await store.access.add_oauth(record("one", secret="second"))
    assert await store.access.oauth_record("one") == record("one")
    assert await store.access.oauth_record("two") is None


async def test_of_concurrent_exchanges_one_wins(store: SQLStore) -> None:
    await store.access.add_oauth(record("one"))
    winners: list[str] = []

    async def exchange(secret: str) -> None:
        if await store.access.exchange_oauth(record("one", secret), "first", 20.0):
            winners.append(secret)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(exchange, f"secret {number}")
    assert len(winners) == 1
    assert await store.access.oauth_record("one") == record("one", winners[0])


async def test_an_expired_record_cannot_be_exchanged_and_is_deleted(store: SQLStore) -> None:
    await store.access.add_oauth(record("old", expires_at=20.0))
    await store.access.add_oauth(record("new"))
    assert not await store.access.exchange_oauth(record("old", "second"), "first", 20.0)
    await store.access.delete_expired(20.0)
    assert await store.access.oauth_record("old") is None
    assert await store.access.oauth_record("new") is not None


async def test_a_deleted_record_cannot_be_exchanged(store: SQLStore) -> None:
    await store.access.add_oauth(record("one"))
    await store.access.add_oauth(record("other"))
    await store.access.delete_oauth("one")
    assert not await store.access.exchange_oauth(record("one", "second"), "first", 20.0)
    assert await store.access.oauth_record("one") is None
    assert await store.access.oauth_record("other") is not None
