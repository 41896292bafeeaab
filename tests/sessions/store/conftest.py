from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from store_making import NODE, MakeStore, Sessions, node_record

from statehold.sessions.store import SQLStore, Store


@pytest.fixture(params=["file", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes a store of each kind; those on files share one folder."""
    if request.param == "memory":
        return SQLStore.memory
    return lambda: SQLStore.sqlite(tmp_path / "data")


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncGenerator[Store]:
    """An open store with one node, NODE."""
    async with make_store() as opened:
        await opened.join(node_record(NODE))
        yield opened


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store)
