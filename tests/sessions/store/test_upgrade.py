"""The schema: made, upgraded and refused."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text
from store_making import NODE, node_record
from support.fork_server import ForkServer

from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.records import LOCAL, HistoryFilter, Principal
from statehold.sessions.store import upgrade as upgrade_module
from statehold.sessions.store.dialect import RemoteDatabase
from statehold.sessions.store.schema import HEAD, metadata
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.store.upgrade import FIRST, migrate, revision, upgrade

FIRST_SCHEMA = Path(__file__).with_name("first_schema.sql")
"""A database as the first version with the schema FIRST left it."""


def _schema(connection: Connection) -> set[tuple[str, str]]:
    rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    return {(row[0], " ".join(row[1].replace('"', "").replace("( ", "(").split())) for row in rows}


def test_the_migrations_lead_to_the_tables_of_the_program() -> None:
    migrated, created = create_engine("sqlite://"), create_engine("sqlite://")
    with migrated.begin() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.executescript(FIRST_SCHEMA.read_text())
        migrate(connection, FIRST)
        assert revision(connection) == HEAD
        columns = {
            name: connection.exec_driver_sql(f"PRAGMA table_info({name})").all()
            for name in metadata.tables
        }
        indexes = _schema(connection)
    with created.begin() as connection:
        upgrade(connection, None)
        assert revision(connection) == HEAD
        for name, rows in columns.items():
            assert connection.exec_driver_sql(f"PRAGMA table_info({name})").all() == rows
        assert {row for row in indexes if "INDEX" in row[1]} == {
            row for row in _schema(connection) if "INDEX" in row[1]
        }
    migrated.dispose()
    created.dispose()


async def test_a_database_of_the_first_schema_opens_with_all_that_is_in_it(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "statehold.db") as connection:
        connection.executescript(FIRST_SCHEMA.read_text())
    connection.close()
    async with SQLStore.sqlite(tmp_path) as store:
        assert await store.check() == []
        shop = await store.find(LOCAL.key, "", "shop")
        assert shop is not None
        assert (shop.status, shop.services) == ("paused", ["notebook"])
        state = await store.state(shop.id)
        assert state is not None
        assert state.value == {"cart": ["tea"]}
        entries = await store.history(shop.id, HistoryFilter())
        assert [each.tool for each in entries if each.kind == "call"] == ["count", "write_note"]
        [ada] = await store.access.changed_principals(0)
        assert (ada.target.name, ada.policy) == ("ada", '{"sessions":2}')
        [ben] = await store.access.revocations()
        assert Principal.of_key(ben.owner).subject == "ben"
        assert [each.grantee.name for each in await store.access.shares(shop.id, 0.0)] == ["ada"]


def test_the_history_is_one_line_that_ends_at_head() -> None:
    from alembic.script import ScriptDirectory

    folder = Path(upgrade_module.__file__).parent / "migrations"
    script = ScriptDirectory(str(folder))
    assert script.get_heads() == [HEAD]
    assert len(script.get_bases()) == 1
    assert not any(each.is_branch_point for each in script.walk_revisions())


def test_neither_import_nor_opening_loads_alembic(tmp_path: Path) -> None:
    program = f"""
import sys, anyio
from pathlib import Path
from statehold.sessions.store.sql import SQLStore

async def main():
    for _ in range(2):
        async with SQLStore.sqlite(Path({str(tmp_path / "data")!r})):
            pass

anyio.run(main)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("alembic", "mako")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.thorough
def test_many_processes_may_open_a_new_folder_at_once(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    program = f"""
import sys, anyio
from pathlib import Path
from statehold.sessions.store.sql import SQLStore

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    async with SQLStore.sqlite(Path({str(tmp_path / "data")!r})) as store:
        print(await store.check(), flush=True)

anyio.run(main)
"""
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(fork_server.command("-c", program), stdin=pipe, stdout=pipe, text=True)
        for _ in range(5)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        output, _ = process.communicate(timeout=30)
        assert (process.returncode, output) == (0, "[]\n")


@pytest.mark.parametrize(
    "url", ["oracle://user:secret@host/db", "postgresql://user:secret@host", "://secret"]
)
def test_only_supported_databases_can_be_named(url: str) -> None:
    with pytest.raises(ValueError, match=r"give \w+://USER@HOST/DATABASE") as caught:
        SQLStore.remote(url)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(RemoteDatabase("postgresql://user:secret@host/db"))


async def _made(folder: Path) -> Path:
    async with SQLStore.sqlite(folder) as store:
        await store.join(node_record(NODE))
    return folder / "statehold.db"


@pytest.mark.parametrize("found", ["0007", "0109"])
async def test_a_database_with_an_earlier_schema_is_refused_and_left_alone(
    tmp_path: Path, found: str
) -> None:
    file = tmp_path / "statehold.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES (?)", (found,))
        connection.execute("CREATE TABLE session (id VARCHAR(128) NOT NULL)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(
        StoreUnavailable,
        match=r"an earlier .* sessions export NAME .* Move it away, or choose another",
    ):
        async with SQLStore.sqlite(tmp_path):
            pass
    assert file.read_bytes() == before
    assert not any("damaged" in name for name in os.listdir(tmp_path))


async def test_a_crash_between_making_the_file_and_the_tables_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "statehold.db").touch()
    assert await _made(tmp_path)


async def test_a_copied_folder_opens_by_itself(tmp_path: Path) -> None:
    await _made(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    async with SQLStore.sqlite(tmp_path / "two") as store:
        assert [n.id for n in await store.nodes()] == [NODE]
