"""Stores with many sessions, which a few statements fill as callers leave them after some days."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import Connection, String, bindparam, select, update

from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.store import schema
from statehold.sessions.store.dialect import execute_many
from statehold.sessions.store.rows import columns_of
from statehold.sessions.store.sealing.keyring import Keyring, seal_rows
from statehold.sessions.store.sql import SQLStore

from ..plan import Plan
from ..servers import PostgreSQL

SMALL: Final = 1000
PER_OWNER: Final = 100
"""Sessions of each owner but LOCAL, who has every other session."""
OTHER: Final = Principal(issuer="https://login.example.org", subject="user-").key
"""The beginning of the keys of the other owners; a number follows."""
RARE: Final = 20
"""Sessions with the status `error`."""
DAY: Final = 86_400
KEY: Final = "c2NhbGUtc2NhbGUtc2NhbGUtc2NhbGUtc2NhbGUtMTI="
_NOTE: Final = "The customer asked for a later date; see the mails of last week. " * 3
_ID: Final = "'sh_' || substr(md5(CAST(i AS TEXT)), 1, 26)"
_TABLES: Final = {
    "session (id, owner, namespace, name, status, created_at, used_at, status_at, closed_at, due_at, idle_seconds, "
    "paused_seconds, lifetime_seconds, metadata, epoch, services, user_id)": f"""
        {_ID}, CASE WHEN i % 2 = 0 THEN '{LOCAL.key}' ELSE '{OTHER}' || (i / {2 * PER_OWNER}) END, '',
        CASE WHEN i % 3 < 2 THEN 's' || i || '-task' END,
        CASE WHEN i < {RARE} THEN 'error' WHEN i % 10 = 9 THEN 'closed' ELSE 'paused' END,
        :now - {8 * DAY}, :now - {7.0 * DAY} * ((i * 48271) % :count) / :count, :now - {DAY},
        CASE WHEN i % 10 = 9 THEN :now - {DAY} END, :now + {DAY} + i, 900, 604800, 0,
        '{{"project":"p' || (i % 50) || '","kind":"' || CASE WHEN i % 20 = 0 THEN 'alpha' ELSE 'other' END ||
            '","note":"{_NOTE}"}}',
        2, '["quick"]', CASE WHEN i % 5 = 0 THEN 'u' || (i / 100) END FROM n""",
    "binding (session_id, service, status, generation, told_generation, config_hash, since)": f"""
        {_ID}, 'quick', 'paused', 1, 1, '', :now FROM n""",
    "state (session_id, version, value)": f"""
        {_ID}, 3, '{{"step":' || i || ',"notes":"{_NOTE}{_NOTE}"}}' FROM n""",
    "tally (session_id, entries, bytes)": f"{_ID}, 2, 900 FROM n",
    "journal (session_id, seq, kind, epoch, service, tool, status, started_at, ended_at, generation, request, result, "
    "bytes)": f"""
        {_ID}, e.seq, 'call', 1, 'quick', 'inc', 'ok', :now, :now, 1, '{{"text":"{_NOTE}"}}',
        '{{"content":["1"],"is_error":false}}', 450 FROM n, (SELECT 1 AS seq UNION ALL SELECT 2) e""",
}
"""The columns of each table, and their expressions for the session number i."""


@dataclass(frozen=True, slots=True)
class Database:
    """A store with `count` sessions, which may be opened again and again."""

    count: int
    folder: Path
    open: Callable[[], SQLStore]
    is_sealed: bool = False
    url: str | None = None


def session_id(number: int) -> str:
    return f"sh_{_md5(str(number))[:26]}"


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _statements(count: int) -> list[str]:
    numbers = "SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count"
    # Rows in the order of their primary key are inserted several times as fast.
    statements = [
        f"INSERT INTO {table} WITH RECURSIVE n(i) AS ({numbers}) SELECT {columns} ORDER BY 1, 2"
        for table, columns in _TABLES.items()
    ]
    now = f"{time.time():.1f}"
    return [each.replace(":count", str(count)).replace(":now", now) for each in statements]


class LargePostgreSQL(PostgreSQL):
    """A server with connections for many nodes, which counts statements."""

    def _running(self) -> list[str]:
        settings = ("max_connections=300", "shared_preload_libraries=pg_stat_statements")
        return [*super()._running(), *(part for each in settings for part in ("-c", each))]


@asynccontextmanager
async def filled(plan: Plan, kind: str, count: int) -> AsyncGenerator[list[Database]]:
    """Yield a store of SMALL and one of `count` sessions; none if the database is not installed."""
    counts = (SMALL, count)
    if kind != "postgresql":
        yield [
            await _fill_file(plan.folder / f"scale-{kind}-{each}", each, kind) for each in counts
        ]
    elif not PostgreSQL.installed():
        yield []
    else:
        server = LargePostgreSQL(durable=True)
        try:
            folder = plan.folder / "scale-postgresql"
            yield [await _fill_server(server.fresh(), folder, each) for each in counts]
        finally:
            server.stop()


async def _fill_file(folder: Path, count: int, kind: str) -> Database:
    data, is_sealed = folder / "data", kind != "sqlite"
    data.mkdir(parents=True, mode=0o700)
    async with SQLStore.sqlite(data):
        pass
    with closing(sqlite3.connect(data / "statehold.db")) as connection:
        connection.create_function("md5", 1, _md5, deterministic=True)
        connection.execute("PRAGMA synchronous=OFF")
        for statement in _statements(count):
            connection.execute(statement)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def open_store() -> SQLStore:
        keyring = Keyring(data, _read_keys) if is_sealed else None
        return SQLStore.sqlite(data, keyring=keyring)

    if is_sealed:
        async with open_store() as store:
            await store.transactions.write(_seal)
    return Database(count, folder, open_store, is_sealed)


async def _read_keys() -> list[str]:
    return [KEY]


_SEALED = ("name", "metadata", "user_id")
_SEAL = (
    update(schema.session)
    .where(schema.session.c.id == bindparam("b_id", type_=String()))
    .values({name: bindparam(f"b_{name}", type_=String()) for name in _SEALED})
)


def _seal(connection: Connection) -> None:
    """Seal the sessions as a store does that had its key from the beginning."""
    found = connection.execute(select(schema.session)).all()
    rows = seal_rows(connection, schema.session, [columns_of(row) for row in found])
    new = [{f"b_{name}": row[name] for name in (*_SEALED, "id")} for row in rows]
    execute_many(connection, _SEAL, new)


async def _fill_server(url: str, folder: Path, count: int) -> Database:
    async with SQLStore.remote(url):
        pass
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for statement in _statements(count):
            connection.execute(statement.encode())
        connection.execute("VACUUM ANALYZE")
    return Database(count, folder / str(count), lambda: SQLStore.remote(url), url=url)
