"""Damage found when a process starts: a server sets the whole file aside, and all other processes leave it alone."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest
from store_making import NODE, OTHER, Sessions, entry, node_record
from support.selection import matrix

from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.node import Node
from statehold.sessions.records import SessionFilter, StateRecord
from statehold.sessions.store import database, schema
from statehold.sessions.store.file.file_backup import back_up
from statehold.sessions.store.sql import SQLStore

MANY = 120


Killed = Callable[..., Awaitable[Path]]


@pytest.fixture
def killed(tmp_path: Path) -> Killed:
    """Makes the database of a process that was killed while it had sessions open."""

    async def make(count: int = MANY) -> Path:
        async with SQLStore.sqlite(tmp_path / "live") as store:
            await store.join(node_record(NODE))
            make = partial(Sessions(store).make, state={"text": "x" * 3000})
            async with anyio.create_task_group() as tasks:
                for number in range(count):
                    tasks.start_soon(make, f"sh_{number:03}", "quick")
            for number in range(count):
                store.append(entry(f"sh_{number:03}", 1, status="started"), NODE)
            await store.flush()
            await store.declare_dead(NODE)
            shutil.copytree(tmp_path / "live", tmp_path / "data")
        return tmp_path / "data" / "statehold.db"

    return make


def checkpoint(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def do(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def log_of(file: Path) -> Path:
    return Path(f"{file}-wal")


def content(folder: Path) -> dict[str, bytes]:
    """Return the contents of the database files, except the index of the log, which each reader rebuilds."""
    return {
        path.name: path.read_bytes()
        for path in folder.glob("statehold.db*")
        if path.suffix != ".lock" and not path.name.endswith("-shm")
    }


def aside(folder: Path) -> list[Path]:
    return sorted(folder.glob("statehold.db.damaged-*[0-9]"))


async def start(folder: Path, *, replace_damaged: bool = True) -> list[str]:
    """Prepare a database as a process does before it serves, serve for a short time, and return the adopted sessions."""
    async with (
        SQLStore.sqlite(folder, replace_damaged=replace_damaged) as store,
        Node(store, folder, address="test", clock=lambda: 5.0) as node,
    ):
        adopted = await node.recover()
        assert [known.id for known in await store.nodes()] == [node.id]
        record = await Sessions(store).make(f"sh_of_{node.id}", node=node.id)
        assert await store.get(record.id) is not None
        assert await store.check() == []
    return adopted


def overwrite(file: Path, root: str) -> None:
    """Put noise over the page where a table or an index begins, or over ten pages in the middle of the file."""
    checkpoint(file)
    page, pages = 60, 10
    if root != "middle":
        with closing(sqlite3.connect(file)) as connection:
            rows = connection.execute("SELECT rootpage FROM sqlite_master WHERE name=?", (root,))
            page, pages = rows.fetchone()[0], 1
    with file.open("r+b") as opened:
        opened.seek(4096 * (page - 1))
        opened.write(os.urandom(4096 * pages))


async def test_damage_that_only_a_check_finds_is_set_aside_before_the_first_request(
    killed: Killed, caplog: pytest.LogCaptureFixture
) -> None:
    file = await killed()
    overwrite(file, "middle")
    before = content(file.parent)
    assert await start(file.parent) == []
    (copy,) = aside(file.parent)
    assert copy.read_bytes() == before["statehold.db"]
    assert f"set aside as {copy.name}" in caplog.text
    assert len(await start(file.parent)) == 1
    assert aside(file.parent) == [copy]


@pytest.mark.parametrize(
    "root",
    matrix(
        *("journal", "session", "receipt_started", "node"),
        *("journal_started", "sqlite_autoindex_journal_1"),
    ),
)
async def test_damage_met_on_the_way_to_serving_is_set_aside_and_an_empty_one_begins(
    killed: Killed, root: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECK_LIMIT", 0)  # as in one too large to be checked
    file = await killed()
    overwrite(file, root)
    size = file.stat().st_size
    assert await start(file.parent) == []
    (copy,) = aside(file.parent)
    assert copy.stat().st_size >= size
    assert f"set aside as {copy.name}" in caplog.text
    assert len(await start(file.parent)) == 1
    assert aside(file.parent) == [copy]


async def test_a_process_that_does_not_serve_reports_damage_and_leaves_it(
    killed: Killed,
) -> None:
    file = await killed()
    overwrite(file, "journal")
    with pytest.raises(StoreUnavailable, match="is damaged"):
        await start(file.parent, replace_damaged=False)
    assert aside(file.parent) == []


async def test_damage_met_while_serving_stays_an_error(killed: Killed) -> None:
    file = await killed()
    checkpoint(file)
    async with SQLStore.sqlite(file.parent, replace_damaged=True) as store:
        await store.join(node_record(OTHER))
        assert len(await store.adopt([NODE], 5.0)) == MANY
        checkpoint(file)  # otherwise the open readers would find the content in the log
        with file.open("r+b") as opened:
            opened.seek(4096)
            opened.write(os.urandom(file.stat().st_size - 4096))
        with pytest.raises(StoreUnavailable, match="is damaged"):
            await store.list_sessions(SessionFilter(limit=1000))
        with pytest.raises(StoreUnavailable, match="is damaged"):
            await store.nodes()
    assert aside(file.parent) == []


async def test_a_start_that_fails_for_another_reason_sets_nothing_aside(
    killed: Killed,
) -> None:
    file = await killed()
    async with SQLStore.sqlite(file.parent, replace_damaged=True, busy_seconds=0.05) as store:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="is locked"):
                await store.join(node_record(OTHER))
        await store.join(node_record(OTHER))
        assert len(await store.adopt([NODE], 5.0)) == MANY
    assert aside(file.parent) == []


async def test_two_that_start_on_a_damaged_database_set_it_aside_once(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECK_LIMIT", 0)
    file = await killed()
    overwrite(file, "journal")
    async with (
        SQLStore.sqlite(file.parent, replace_damaged=True) as one,
        SQLStore.sqlite(file.parent, replace_damaged=True) as two,
    ):
        await one.join(node_record(OTHER))
        await two.join(node_record("n_three"))
        assert await one.adopt([NODE], 5.0) == []
        assert await two.adopt([NODE], 5.0) == []
        assert len(await one.nodes()) == len(await two.nodes()) == 2
    assert len(aside(file.parent)) == 1


# Missing tables and columns.


@pytest.mark.parametrize("table", matrix(*schema.metadata.tables))
async def test_a_database_without_one_of_its_tables_is_damaged(killed: Killed, table: str) -> None:
    file = await killed(3)
    do(file, f"DROP TABLE {table}")
    checkpoint(file)
    before = content(file.parent)
    with pytest.raises(StoreUnavailable, match=f"is damaged: it has no table {table}"):
        await start(file.parent, replace_damaged=False)
    assert content(file.parent) == before
    assert await start(file.parent) == []
    (copy,) = aside(file.parent)
    assert copy.read_bytes() == before["statehold.db"]


# A database and its log.


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def of_one_byte(file: Path) -> None:
    os.truncate(file, 1)


def removed(file: Path) -> None:
    file.unlink()


def noise_as_log(file: Path) -> None:
    log_of(file).write_bytes(os.urandom(50_000))


def header_of_log(file: Path) -> None:
    with log_of(file).open("r+b") as opened:
        opened.write(os.urandom(32))


def first_frame_of_log(file: Path) -> None:
    with log_of(file).open("r+b") as opened:
        opened.seek(32)
        opened.write(os.urandom(24))


def first_pages_of_log(file: Path) -> None:
    with log_of(file).open("r+b") as opened:
        opened.seek(32 + 24)
        opened.write(os.urandom(4096))


@pytest.mark.parametrize(
    "damage",
    matrix(
        *(emptied, header_of_log, of_one_byte, removed),
        *(noise_as_log, first_frame_of_log, first_pages_of_log),
        quick=2,
    ),
)
async def test_a_log_that_sqlite_would_throw_away_is_set_aside_with_its_database(
    killed: Killed, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    file = await killed()
    assert file.stat().st_size == 4096
    damage(file)
    before = content(file.parent)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        await start(file.parent, replace_damaged=False)
    if file.exists():
        with pytest.raises(StoreUnavailable, match="is damaged"):
            back_up(file.parent, tmp_path / "copy.db")
    assert content(file.parent) == before
    assert await start(file.parent) == []
    (copy,) = aside(file.parent)
    assert log_of(copy).read_bytes() == before["statehold.db-wal"]
    assert aside(file.parent) == [copy]


async def test_a_database_that_was_set_aside_with_its_log_can_be_read(killed: Killed) -> None:
    file = await killed()
    emptied(file)
    await start(file.parent)
    (copy,) = aside(file.parent)
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM session").fetchone() == (MANY,)


@pytest.mark.parametrize("frames", matrix(5, 0, 1, 10_000))
async def test_a_kill_during_the_creation_of_the_tables_does_no_damage(
    tmp_path: Path, frames: int
) -> None:
    file = tmp_path / "data" / "statehold.db"
    async with SQLStore.sqlite(tmp_path / "live"):
        shutil.copytree(tmp_path / "live", file.parent)
    whole = log_of(file).stat().st_size
    os.truncate(log_of(file), min(whole - 5, 32 + frames * (24 + 4096)))
    await start(file.parent)
    assert aside(file.parent) == []


async def test_a_database_that_was_only_ever_in_its_log_is_read(
    killed: Killed,
) -> None:
    file = await killed()
    assert file.stat().st_size == 4096
    assert len(await start(file.parent)) == MANY
    assert aside(file.parent) == []
    async with SQLStore.sqlite(file.parent) as store:
        assert await store.state("sh_007") == StateRecord(
            session_id="sh_007", value={"text": "x" * 3000}
        )
