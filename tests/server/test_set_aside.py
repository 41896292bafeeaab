"""A server process and the doctor on a database that was damaged after the last server was killed."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from support.gateway_process import Way, opened_session, serving, structured

from statehold.server.config.model import Config
from statehold.shell.doctor.data import check_store

SESSIONS = 40


def _checkpoint(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def noise_in_the_middle(file: Path) -> None:
    _checkpoint(file)
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2 // 4096 * 4096)
        opened.write(os.urandom(4096 * 10))


def table_dropped(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE journal")
    _checkpoint(file)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def _content(data: Path, pattern: str) -> list[bytes]:
    """Return the contents of files; an empty log of SQLite says nothing."""
    contents = (path.read_bytes() for path in sorted(data.glob(pattern)))
    return [content for content in contents if content or not pattern.endswith("-wal")]


@pytest.mark.thorough
@pytest.mark.parametrize("damage", [noise_in_the_middle, table_dropped, emptied])
async def test_a_server_sets_a_damaged_database_aside_and_serves(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.touch()
    file = data / "statehold.db"
    with serving(config, data) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect() as client:
            for number in range(SESSIONS):
                await opened_session(client, name=f"n{number}", state={"text": "x" * 3000})
        running.process.kill()
        assert running.process.wait(10) == -signal.SIGKILL
    damage(file)
    before = _content(data, "statehold.db") + _content(data, "statehold.db-wal")

    def findings() -> str:
        return str(list(check_store(Config(data=data))))

    assert "statehold.db is damaged" in await anyio.to_thread.run_sync(findings)
    assert _content(data, "statehold.db") + _content(data, "statehold.db-wal") == before

    for _ in range(2):
        with serving(config, data) as running:
            way = Way("http", "modern", config, data, url=running.url)
            async with way.connect() as client:
                await opened_session(client)
                content = structured(await client.call_tool("session_list", {"limit": 100}))
                assert 0 < len(content["sessions"]) < 3
            log = running.log
        (copy,) = data.glob("statehold.db.damaged-*[0-9]")
        if len(content["sessions"]) == 1:
            assert f"statehold.db is damaged: it was set aside as {copy.name}" in log
        if damage is emptied:
            assert _content(data, "*.damaged-*-wal") == [before[1]]
        else:
            assert [copy.read_bytes()] == before[:1]
    assert "was damaged and set aside" in await anyio.to_thread.run_sync(findings)


async def test_the_doctor_reports_a_log_without_its_database(tmp_path: Path) -> None:
    (tmp_path / "statehold.db-wal").write_bytes(b"log" * 5000)

    def findings() -> str:
        return str(list(check_store(Config(data=tmp_path))))

    assert "statehold.db is damaged" in await anyio.to_thread.run_sync(findings)
    assert _content(tmp_path, "statehold.db-wal") == [b"log" * 5000]
    assert not (tmp_path / "statehold.db").exists()
