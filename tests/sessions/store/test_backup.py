"""Copies of a database in use, the fate of a damaged one, and a disk that is full for a while."""

from __future__ import annotations

import os
import resource
import sqlite3
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from store_making import NODE, OTHER, Sessions, entry, node_record, version_of

from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.records import StateRecord
from statehold.sessions.store import Write
from statehold.sessions.store.file.file_backup import PAGES, back_up
from statehold.sessions.store.sql import SQLStore


def _state(version: int, size: int = 1) -> Write:
    value: dict[str, Any] = {"n": version, "text": "x" * size}
    return Write(
        "sh_a", NODE, 1, state=StateRecord(session_id="sh_a", version=version, value=value)
    )


async def _prepare(store: SQLStore) -> None:
    await store.join(node_record(NODE))
    await Sessions(store).make("sh_a", name="work")


def _names(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


# Copies.


async def test_a_copy_is_of_one_moment_while_others_write_and_opens_as_it_is(
    tmp_path: Path,
) -> None:
    acknowledged = began = ended = size = 0
    async with SQLStore.sqlite(tmp_path / "data") as store:
        await _prepare(store)
        stop, written = anyio.Event(), anyio.Condition()

        async def write() -> None:
            nonlocal acknowledged
            while not stop.is_set():
                version = acknowledged + 1
                noted = entry("sh_a", version)
                both = _state(version, 5000)
                both.journal = [noted]
                await store.write(both)
                async with written:
                    acknowledged = version
                    written.notify_all()

        async def until(count: int) -> None:
            async with written:
                while acknowledged < count:
                    await written.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            with anyio.fail_after(20):
                await until(30)
                began = acknowledged
                size = await anyio.to_thread.run_sync(
                    back_up, tmp_path / "data", tmp_path / "copy.db"
                )
                ended = acknowledged
                await until(ended + 10)
            stop.set()
    copy = tmp_path / "copy.db"
    status = copy.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o600, size)
    assert _names(tmp_path) == ["copy.db", "data"]

    (tmp_path / "restored").mkdir()
    copy.rename(tmp_path / "restored" / "statehold.db")
    async with SQLStore.sqlite(tmp_path / "restored") as again:
        assert await again.check() == []
        version = await version_of(again)
        assert began <= version <= ended + 1
        assert [e.seq for e in await again.journal("sh_a", last=100_000)][-1] == version
        assert await again.nodes() == []
        await again.join(node_record(OTHER))
        assert await again.adopt([], 9.0) == ["sh_a"]


async def test_a_copy_in_steps_is_of_the_moment_of_the_first(tmp_path: Path) -> None:
    async with SQLStore.sqlite(tmp_path / "data") as store:
        await _prepare(store)
    reports: list[tuple[int, int]] = []
    with closing(sqlite3.connect(tmp_path / "data" / "statehold.db")) as writer:
        writer.execute("CREATE TABLE filler (number, data)")
        writer.executemany(
            "INSERT INTO filler VALUES (?, ?)",
            [(number, b"x" * 4000) for number in range(3 * PAGES)],
        )
        writer.commit()

        def report(done: int, total: int) -> None:
            reports.append((done, total))
            # A write of another connection between two steps neither waits nor starts the copy again.
            writer.execute("UPDATE filler SET number = -1")
            writer.commit()

        back_up(tmp_path / "data", tmp_path / "copy.db", report=report)
    assert len(reports) > 3
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert reports[-1][0] == reports[-1][1] == reports[0][1]
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        [numbers] = copy.execute("SELECT min(number), max(number) FROM filler")
    assert numbers == (0, 3 * PAGES - 1)


async def test_a_copy_overwrites_no_file_and_needs_a_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nothing is stored"):
        back_up(tmp_path / "data", tmp_path / "copy.db")
    async with SQLStore.sqlite(tmp_path / "data") as store:
        await _prepare(store)
        (tmp_path / "precious").write_text("mine")
        (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
        for name in ("precious", "dangling"):
            with pytest.raises(FileExistsError):
                back_up(tmp_path / "data", tmp_path / name)
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            back_up(tmp_path / "data", tmp_path / "none" / "copy.db")
    assert (tmp_path / "precious").read_text() == "mine"
    assert _names(tmp_path) == ["dangling", "data", "precious"]


async def test_a_copy_of_something_damaged_is_refused_and_not_left_behind(tmp_path: Path) -> None:
    async with SQLStore.sqlite(tmp_path) as store:
        await _prepare(store)
        for number in range(200):
            await Sessions(store).make(f"sh_{number}")
    with (tmp_path / "statehold.db").open("r+b") as file:
        file.seek(4096 * 20)
        file.write(os.urandom(4096 * 4))
    with pytest.raises(StoreUnavailable, match="damaged"):
        back_up(tmp_path, tmp_path / "copy")
    assert _names(tmp_path, "*copy*") == []


# Damage.


@pytest.mark.parametrize("content", [b"hello", b"\xff" * 50_000], ids=["text", "noise"])
async def test_a_serving_process_sets_a_damaged_database_aside_whole(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "statehold.db"
    copies: list[str] = []
    for time in (1, 2):
        file.write_bytes(content)
        (tmp_path / "statehold.db-wal").write_bytes(b"log")
        with pytest.raises(StoreUnavailable, match=r"statehold\.db is"):
            async with SQLStore.sqlite(tmp_path):
                pass
        assert file.read_bytes() == content
        async with SQLStore.sqlite(tmp_path, replace_damaged=True) as store:
            await _prepare(store)
            assert await store.check() == []
        copies = [name for name in _names(tmp_path, "*.damaged-*") if name[-1].isdigit()]
        assert len(copies) == time
        for name in copies:
            assert name in caplog.text
            assert (tmp_path / name).read_bytes() == content
            # SQLite itself removes a log in which there is nothing.
            assert set(_names(tmp_path, f"{name}-[ws]*")) <= {f"{name}-wal", f"{name}-shm"}
    async with SQLStore.sqlite(tmp_path, replace_damaged=True) as store:
        assert await store.get("sh_a") is not None
    assert [name for name in _names(tmp_path, "*.damaged-*") if name[-1].isdigit()] == copies


@pytest.mark.parametrize(
    ("statement", "message"),
    [("CREATE TABLE bookmarks (url TEXT)", "another program"), (None, "was written by a newer")],
)
async def test_nothing_that_can_be_read_is_ever_set_aside(
    tmp_path: Path, statement: str | None, message: str
) -> None:
    async with SQLStore.sqlite(tmp_path) as store:
        await _prepare(store)
    file = tmp_path / "statehold.db"
    if statement is None:  # of a newer program
        statement = "UPDATE alembic_version SET version_num = '9999'"
    else:
        file.unlink()
    with sqlite3.connect(file) as connection:
        connection.execute(statement)
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreUnavailable, match=message) as caught:
        async with SQLStore.sqlite(tmp_path, replace_damaged=True):
            pass
    assert str(tmp_path) not in str(caught.value)
    assert file.read_bytes() == before
    assert _names(tmp_path, "*.damaged-*") == []


# A full disk.


@contextmanager
def _no_room_beyond(size: int) -> Generator[None]:
    """Limit the size of every file of this process: for the writer this is the same as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_loses_nothing_acknowledged_and_is_over_when_there_is_room(
    tmp_path: Path,
) -> None:
    async with SQLStore.sqlite(tmp_path) as store:
        await _prepare(store)
        acknowledged = 0
        with _no_room_beyond(1 << 20):
            with pytest.raises(StoreUnavailable, match=r"^statehold\.db .*\.") as caught:  # noqa: PT012
                while True:
                    await store.write(_state(acknowledged + 1, 50_000))
                    acknowledged += 1
            assert str(tmp_path) not in str(caught.value)
            assert acknowledged > 3
            for seq in (1, 2, 3):
                store.append(entry("sh_a", seq, result="x" * 500_000), NODE)
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await store.write(_state(acknowledged + 1, 2_000_000))
                assert await version_of(store) == acknowledged
        await store.flush()
        assert [e.seq for e in await store.journal("sh_a")] == [1, 2, 3]
        assert store.dropped_entries == 0
        await store.write(_state(acknowledged + 1, 2_000_000))
    async with SQLStore.sqlite(tmp_path) as again:
        assert await again.check() == []
        assert await version_of(again) == acknowledged + 1
