from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import cache, partial
from pathlib import Path

import pytest
from store_making import NODE, MakeStore, Sessions, node_record
from support.databases import DatabaseServer
from support.selection import matrix

from statehold.sessions.store.dialect import RemoteDatabase
from statehold.sessions.store.sql import SQLStore


@pytest.fixture(params=matrix("file", "memory", "postgresql", "mariadb"))
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes a store of each kind; all but those in memory have one database together."""
    match request.param:
        case "memory":
            return SQLStore.memory
        case "file":
            return partial(SQLStore.sqlite, tmp_path / "data")
        case name:
            server: DatabaseServer = request.getfixturevalue(name)
            return partial(SQLStore, _database(server.emptied()))


@cache
def _database(url: str) -> RemoteDatabase:
    return RemoteDatabase(url)  # one for all tests, so that a statement is compiled once


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncGenerator[SQLStore]:
    """An open store with one node, NODE."""
    async with make_store() as opened:
        await opened.join(node_record(NODE))
        yield opened


@pytest.fixture
def sessions(store: SQLStore) -> Sessions:
    return Sessions(store)
