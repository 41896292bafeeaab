"""The schema: made, upgraded and refused."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text
from store_making import NODE, Sessions, node_record
from support.fork_server import ForkServer

from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.records import Principal, SessionFilter
from statehold.sessions.store import upgrade as upgrade_module
from statehold.sessions.store.dialect import RemoteDatabase
from statehold.sessions.store.schema import HEAD, metadata
from statehold.sessions.store.sql import SQLStore, open_store
from statehold.sessions.store.upgrade import migrate, revision, upgrade


def _schema(connection: Connection) -> set[tuple[str, str]]:
    rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    return {(row[0], " ".join(row[1].replace('"', "").replace("( ", "(").split())) for row in rows}


def test_the_migrations_lead_to_the_tables_of_the_program() -> None:
    migrated, created = create_engine("sqlite://"), create_engine("sqlite://")
    with migrated.begin() as connection:
        migrate(connection, None)
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


def test_the_history_is_one_line_that_ends_at_head() -> None:
    from alembic.script import ScriptDirectory

    folder = Path(upgrade_module.__file__).parent / "migrations"
    script = ScriptDirectory(str(folder))
    assert script.get_heads() == [HEAD]
    assert len(script.get_bases()) == 1
    assert not any(each.is_branch_point for each in script.walk_revisions())


def test_a_database_of_every_earlier_schema_is_stored() -> None:
    """The stored schemas are the parameters of `test_a_stored_database_of_an_earlier_schema_is_upgraded`."""
    from alembic.script import ScriptDirectory

    folder = Path(upgrade_module.__file__).parent / "migrations"
    revisions = {each.revision for each in ScriptDirectory(str(folder)).walk_revisions()}
    stored = {path.stem for path in (Path(__file__).parent / "stored").glob("*.sql")}
    assert stored == revisions - {HEAD}


async def test_the_sessions_of_all_clients_of_a_user_become_the_users(tmp_path: Path) -> None:
    """If two open sessions have the same name, the one that was used last keeps it."""
    stored = Path(__file__).parent / "stored" / "0003.sql"
    with sqlite3.connect(tmp_path / "statehold.db") as connection:
        connection.executescript(stored.read_text(encoding="utf-8"))
    connection.close()
    ben, ann = Principal(issuer="home", subject="ben"), Principal(subject="ann", client_id="new")
    async with SQLStore.sqlite(tmp_path) as store:
        sessions, _ = await store.list_sessions(SessionFilter(owner=ben.key))
        assert [(record.id, record.namespace, record.name) for record in sessions] == [
            ("sh_g", "", "notes"),
            ("sh_e", "", "notes"),
            ("sh_d", "", None),
            ("sh_f", "other", "notes"),
        ]
        of_ann = await store.find(ann.key, "", "notes")
        assert of_ann is not None
        assert of_ann.id == "sh_h"
        of_local = await store.find("local", "", "work")
        assert of_local is not None


async def test_sessions_with_the_former_default_times_last_like_new_ones(tmp_path: Path) -> None:
    """Times that were chosen stay; a paused session is due by its new times, and a closed one as before."""
    stored = Path(__file__).parent / "stored" / "0006.sql"
    columns = (
        "id, owner, namespace, name, status, created_at, used_at, status_at, due_at, idle_seconds, "
        "paused_seconds, lifetime_seconds, lifetime_ends_at, metadata, epoch, services"
    )
    day, month = 86_400.0, 2_592_000.0
    with sqlite3.connect(tmp_path / "statehold.db") as connection:
        connection.executescript(stored.read_text(encoding="utf-8"))
        for row in (
            ("sh_named", "mine", "paused", day + 5, day, 7 * day, 7 * day),
            ("sh_unnamed", None, "paused", day + 5, day, 7 * day, 7 * day),
            ("sh_chosen", "chosen", "paused", 60.0 + 5, 60.0, 3600.0, 3605.0),
            ("sh_gone", "gone", "closed", 9.0, day, 7 * day, 7 * day),
        ):
            key, name, status, *times = row
            values = (key, ":last", "", name, status, 5.0, 5.0, 5.0, times[0], 900.0, *times[1:])
            values = (*values, "{}", 1, "[]")
            marks = ", ".join("?" * len(values))
            connection.execute(f'INSERT INTO "session" ({columns}) VALUES ({marks})', values)
    connection.close()
    async with SQLStore.sqlite(tmp_path) as store:
        records = {
            key: await store.get(key) for key in ("sh_named", "sh_unnamed", "sh_chosen", "sh_gone")
        }
    times = {
        key: (
            record.timeouts.paused,
            record.timeouts.lifetime,
            record.lifetime_ends_at,
            record.due_at,
        )
        for key, record in records.items()
        if record is not None
    }
    assert times == {
        "sh_named": (0.0, 0.0, None, None),
        "sh_unnamed": (month, 0.0, None, month + 5),
        "sh_chosen": (60.0, 3600.0, 3605.0, 65.0),
        "sh_gone": (day, 7 * day, 7 * day, 9.0),
    }


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


async def test_a_database_is_opened_again_as_it_was(tmp_path: Path) -> None:
    async with open_store(tmp_path / "data") as store:
        await store.join(node_record(NODE))
        await Sessions(store).make("sh_a", name="login")
    async with open_store(str(tmp_path / "data")) as store:
        assert await store.find("local", "", "login") is not None


@pytest.mark.parametrize(
    "url", ["oracle://user:secret@host/db", "postgresql://user:secret@host", "://secret"]
)
def test_only_supported_databases_can_be_named(url: str) -> None:
    with pytest.raises(ValueError, match=r"give \w+://USER@HOST/DATABASE") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert isinstance(open_store(":memory:"), SQLStore)
    assert "secret" not in repr(RemoteDatabase("postgresql://user:secret@host/db"))


async def _made(folder: Path) -> Path:
    async with SQLStore.sqlite(folder) as store:
        await store.join(node_record(NODE))
    return folder / "statehold.db"


async def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = await _made(tmp_path)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"statehold\.db was written by a newer") as caught:
        async with SQLStore.sqlite(tmp_path):
            pass
    assert str(tmp_path) not in str(caught.value)
    assert file.read_bytes() == before


async def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "statehold.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreUnavailable, match="another program"):
        async with SQLStore.sqlite(tmp_path):
            pass
    assert file.read_bytes() == before


async def test_a_crash_between_making_the_file_and_the_tables_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "statehold.db").touch()
    assert await _made(tmp_path)


async def test_a_copied_folder_opens_by_itself(tmp_path: Path) -> None:
    await _made(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    async with SQLStore.sqlite(tmp_path / "two") as store:
        assert [n.id for n in await store.nodes()] == [NODE]
