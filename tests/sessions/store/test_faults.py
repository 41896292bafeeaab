"""Database failures: the store raises one clear error, overwrites nothing, and works again afterwards."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import stat
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from sqlalchemy import Connection
from store_making import NODE, Sessions, entry, node_record
from support.selection import matrix

from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.store import Write, sql
from statehold.sessions.store.file.store_folder import DataFolder
from statehold.sessions.store.sql import SQLStore


def _store(folder: Path) -> SQLStore:
    return SQLStore.sqlite(folder, busy_seconds=0.05)


def _write(used_at: float = 2.0) -> Write:
    return Write("sh_a", NODE, 1, session={"used_at": used_at})


async def _prepare(store: SQLStore) -> None:
    await store.join(node_record(NODE))
    await Sessions(store).make("sh_a")


@contextmanager
def _foreign_lock(folder: Path) -> Generator[None]:
    connection = sqlite3.connect(folder / "statehold.db", isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
    finally:
        connection.close()


async def test_a_locked_database_is_reported_and_works_again_when_it_is_free(
    tmp_path: Path,
) -> None:
    async with _store(tmp_path) as store:
        await _prepare(store)
        with _foreign_lock(tmp_path):
            with pytest.raises(StoreUnavailable, match=r"statehold\.db is locked") as caught:
                await store.write(_write())
            assert str(tmp_path) not in str(caught.value)
            assert await store.get("sh_a") is not None
        await store.write(_write(3.0))
        record = await store.get("sh_a")
        assert record is not None
        assert record.used_at == 3.0


async def test_all_waiters_get_an_error_and_entries_are_written_later(tmp_path: Path) -> None:
    async with _store(tmp_path) as store:
        await _prepare(store)
        errors: list[str] = []

        async def write() -> None:
            with pytest.raises(StoreUnavailable):
                await store.write(_write())
            errors.append("unavailable")

        with _foreign_lock(tmp_path):
            for seq in range(1, 4):
                store.append(entry("sh_a", seq), NODE)
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(write)
            with pytest.raises(StoreUnavailable):
                await store.flush()
        assert len(errors) == 20
        await store.flush()
        assert [e.seq for e in await store.journal("sh_a")] == [1, 2, 3]
        assert store.dropped_entries == 0


async def test_closing_on_a_locked_database_ends_and_counts_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sql, "CLOSE_SECONDS", 0.5)
    store = _store(tmp_path)
    with anyio.fail_after(20):
        async with store:
            await _prepare(store)
            lock = _foreign_lock(tmp_path)
            lock.__enter__()
            store.append(entry("sh_a", 1), NODE)
        lock.__exit__(None, None, None)
    assert store.dropped_entries == 1
    assert "1 journal entries are lost: statehold.db is locked" in caplog.text


async def test_closing_waits_until_the_database_takes_what_was_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, stop_waits, emit = _foreign_lock(tmp_path), anyio.Event(), caplog.handler.emit

    def watch(record: logging.LogRecord) -> None:
        emit(record)
        if "the stop waits" in record.getMessage():
            stop_waits.set()

    monkeypatch.setattr(caplog.handler, "emit", watch)

    async def free() -> None:
        with anyio.fail_after(20):
            await stop_waits.wait()
        lock.__exit__(None, None, None)

    async with anyio.create_task_group() as tasks, _store(tmp_path) as store:
        await _prepare(store)
        lock.__enter__()
        store.append(entry("sh_a", 1), NODE)
        tasks.start_soon(free)
    assert store.dropped_entries == 0
    async with _store(tmp_path) as store:
        assert [e.seq for e in await store.journal("sh_a")] == [1]


async def test_a_full_disk_is_reported_and_works_again_when_there_is_space(tmp_path: Path) -> None:
    async with _store(tmp_path) as store:
        await _prepare(store)
        pages = (tmp_path / "statehold.db").stat().st_size // 4096 + 50

        async def allow(pages: int) -> None:
            def limit(connection: Connection) -> None:
                connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

            await store._connections.write(limit)  # pyright: ignore[reportPrivateUsage]

        await allow(pages)
        big = {"metadata": {"text": "x" * 2_000_000}}
        with pytest.raises(StoreUnavailable, match=r"statehold\.db cannot grow"):
            await store.write(Write("sh_a", NODE, 1, session=big))
        # The connection is kept when the disk is full: there may be no descriptor for another one.
        await allow(1_000_000)
        await store.write(Write("sh_a", NODE, 1, session=big))


@pytest.mark.parametrize(
    ("number", "words"),
    matrix(
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EMFILE, "too many open files"),
        (errno.EIO, "cannot be read or written"),
        quick=2,
    ),
)
async def test_an_error_of_the_operating_system_is_reported_and_costs_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    async with _store(tmp_path) as store:
        await _prepare(store)
        store.append(entry("sh_a", 1), NODE)

        def failing(folder: DataFolder) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patched:
            patched.setattr(DataFolder, "check", failing)
            with pytest.raises(StoreUnavailable, match=words):
                await store.flush()
        await store.flush()
        assert [e.seq for e in await store.journal("sh_a")] == [1]
        assert store.dropped_entries == 0


@pytest.mark.parametrize(
    "content",
    matrix(
        *(b"SQLite format 3\x00" + b"\xff" * 8000, b"hello", b"\x00" * 4096, os.urandom(100_000)),
        quick=2,
    ),
    ids=["header", "text", "zeros", "noise"],
)
async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "statehold.db"
    file.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"^statehold\.db is ") as caught:
        async with _store(tmp_path):
            pass
    assert str(tmp_path) not in str(caught.value)
    assert file.read_bytes() == content


async def test_rows_without_their_session_are_found_by_the_check(tmp_path: Path) -> None:
    async with _store(tmp_path) as store:
        await _prepare(store)
        with sqlite3.connect(tmp_path / "statehold.db") as connection:
            connection.execute("INSERT INTO state VALUES ('sh_gone', 0, '{}', NULL)")
            connection.execute("DELETE FROM state WHERE session_id = 'sh_a'")
        connection.close()
        assert await store.check() == [
            "state: 1 rows belong to no session",
            "session: 1 rows have no state",
        ]


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_nothing_is_written_into_a_file_that_is_not_there_any_more(
    tmp_path: Path, how: str
) -> None:
    file = tmp_path / "statehold.db"
    async with _store(tmp_path) as store:
        await _prepare(store)
        if how == "removed":
            file.unlink()
        else:
            (tmp_path / "other").write_bytes(b"")
            (tmp_path / "other").replace(file)
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await store.write(_write())


async def test_a_data_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="Choose a data folder") as caught:
        async with _store(tmp_path / "file" / "data"):
            pass
    assert str(tmp_path) not in str(caught.value)


async def test_opening_waits_for_a_bounded_time_while_another_process_opens(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "statehold.db.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(StoreUnavailable, match="another process"):
            async with DataFolder(tmp_path).hold_lock(0.02):
                pass
    finally:
        os.close(handle)


async def test_only_the_user_can_read_what_is_stored(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    umask = os.umask(0)
    try:
        async with _store(folder) as store:
            await _prepare(store)
            store.append(entry("sh_a", 1), NODE)
            await store.flush()
            names = {path.name for path in folder.iterdir()}
            assert {"statehold.db", "statehold.db-wal", "statehold.db-shm"} <= names
            for path in folder.iterdir():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(umask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_folder_of_ours_is_closed_to_others_and_one_of_theirs_is_not_touched(
    tmp_path: Path,
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir(mode=0o755)
    (theirs / "letter.txt").touch()
    for folder in (ours, theirs):
        async with _store(folder):
            pass
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o755


async def test_written_values_are_in_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _store(tmp_path) as store:
        await _prepare(store)
        secret = "-".join(["hunter", "2"])
        with _foreign_lock(tmp_path), pytest.raises(StoreUnavailable) as caught:
            await store.write(Write("sh_a", NODE, 1, session={"metadata": {"key": secret}}))
    assert secret not in "".join(traceback.format_exception(caught.value))
    assert secret not in caplog.text
