"""The chain of the audit log in a store that several processes write."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from support.databases import DatabaseServer

from statehold.sessions.principals.audit_log import ChainCheck
from statehold.sessions.store.sql import SQLStore

KINDS = [
    "sqlite",
    *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("postgresql", "mariadb")),
]
ENTRIES = 100


@pytest.fixture(params=KINDS)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Path | str]:
    if request.param == "sqlite":
        yield tmp_path
        return
    database: DatabaseServer = request.getfixturevalue(request.param)
    database.start()
    yield database.emptied()


@pytest.fixture
async def stores(location: Path | str) -> AsyncGenerator[list[SQLStore]]:
    """Two stores of one database, as two processes have them."""
    async with AsyncExitStack() as stack:
        opened = [
            SQLStore.sqlite(location) if isinstance(location, Path) else SQLStore.remote(location)
            for _ in range(2)
        ]
        for store in opened:
            await stack.enter_async_context(store)
        yield opened


async def test_two_processes_write_one_chain(stores: list[SQLStore]) -> None:
    async with anyio.create_task_group() as tasks:
        for number, store in enumerate(stores):
            for entry in range(ENTRIES):
                tasks.start_soon(store.write_audit, f'{{"store":{number},"entry":{entry}}}')
    rows = await stores[0].audit_page(0, 10 * ENTRIES)
    check = ChainCheck()
    check.read(rows)
    check.end(await stores[1].audit_head())
    assert check.faults == []
    assert len({row.document for row in rows}) == 2 * ENTRIES
