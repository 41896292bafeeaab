"""Memberships of principals in the store, and the use of sessions by principal."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from store_making import MakeStore, Sessions
from support.selection import matrix

from statehold.sessions.lifecycle import Status
from statehold.sessions.principals.rules import Membership, PolicyTarget
from statehold.sessions.records import Principal
from statehold.sessions.store.dialect.sqlite import FILE_NAME
from statehold.sessions.store.sql import SQLStore

ADA = PolicyTarget.principal(Principal(issuer="https://idp.example", subject="ada"))
BEN = PolicyTarget.principal(Principal(subject="ben"))


async def test_a_group_that_is_no_text_is_read_as_one(store: SQLStore) -> None:
    """An issuer may send one; it must not end the processes that read the row."""
    await store.access.put_membership(ADA, Membership(("\ud800", "b")), 1.0)
    [ada] = await store.access.changed_principals(0)
    assert ada.membership.groups == ("\N{REPLACEMENT CHARACTER}", "b")


STORED = matrix('["a", "b"]', '{"a": null, "b": 9.0}', '{"a": 0.0, "b": 9.0}')
"""Memberships as the first schema has them, and as versions since then store them."""


@pytest.mark.parametrize("stored", STORED)
async def test_a_membership_of_another_version_is_read(stored: str, tmp_path: Path) -> None:
    async with SQLStore.sqlite(tmp_path) as store:
        await store.access.put_membership(ADA, Membership(("b", "a"), ends={"a": 5.0}), 1.0)
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as database, database:
            [row] = database.execute("SELECT member_of FROM principal").fetchall()
            assert sorted(json.loads(row[0])) == ["a", "b"]
            database.execute("UPDATE principal SET member_of = ?", [stored])
        [ada] = await store.access.changed_principals(0)
    assert ada.membership.groups == ("a", "b")
    assert ada.membership.ends == ({"b": 9.0} if "9.0" in stored else {})


async def test_principals_are_listed_with_their_sessions(
    store: SQLStore, sessions: Sessions
) -> None:
    assert list(await store.access.principals()) == []
    await sessions.make("sh_a", owner=":ada", used_at=5.0)
    await sessions.make("sh_b", owner=":ada", used_at=9.0, status=Status.CLOSED)
    await sessions.make("sh_c", owner=":ben", used_at=10.0)
    ben, ada = await store.access.principals()
    assert (ben.owner, ben.open_sessions, ben.sessions, ben.used_at) == (":ben", 1, 1, 10.0)
    assert (ada.owner, ada.open_sessions, ada.sessions, ada.used_at) == (":ada", 1, 2, 9.0)


@pytest.mark.thorough
async def test_every_change_of_two_processes_has_a_version_of_its_own(
    make_store: MakeStore,
) -> None:
    async with make_store() as first:
        async with make_store() as second, anyio.create_task_group() as tasks:
            for number in range(20):
                for store in (first, second):
                    target, membership = ADA if store is first else BEN, Membership((str(number),))
                    tasks.start_soon(store.access.put_membership, target, membership, 1.0)
        versions = [each.version for each in await first.access.changed_principals(0)]
        assert len(set(versions)) == len(versions)
        # In memory, each store has a database of its own.
        assert max(versions) == (40 if len(versions) == 2 else 20)
