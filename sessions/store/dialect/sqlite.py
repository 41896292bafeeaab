"""SQLite: one file in the data folder, or nothing but memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, text
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.sql.dml import Insert

from ...errors import StoreUnavailable
from .values import PackedTexts, Violation, may_have_text, overwriting

FILE_NAME: Final = "statehold.db"
DIALECT: Final = SQLiteDialect_pysqlite()
WRITES: Final = "statehold_writes"
"""The execution option of a connection whose transactions take the write lock at once, where there is only one."""

sqlite3.register_adapter(PackedTexts, json.dumps)

# Settings of every connection. An acknowledged write survives a power cut (synchronous=FULL); deleted data is zeroed where
# that costs no extra page (secure_delete=FAST).
_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=FAST",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA journal_size_limit=67108864",
)


class _Connection(sqlite3.Connection):
    """A connection with the settings that every connection needs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for pragma in _PRAGMAS:
            self.execute(pragma).close()


def make_engine(file: Path | None, busy_seconds: float) -> Engine:
    """Return an engine for a file, or for an in-memory database when there is none. It does not connect yet."""
    database = ":memory:" if file is None else str(file)
    options: dict[str, Any] = {
        "factory": _Connection,
        "isolation_level": None,  # the driver begins nothing by itself
        "timeout": busy_seconds,
    }
    engine = create_engine(
        URL.create("sqlite", database=database),
        poolclass=NullPool,
        connect_args=options,
        hide_parameters=True,  # errors are logged, and values are secret
    )
    event.listen(engine, "connect", _add_functions)
    event.listen(engine, "begin", _begin)
    return engine


def set_durable(connection: Connection, durable: bool) -> None:
    """Set whether the following transactions are flushed to the disk when they are committed."""
    run(connection, f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}", ())


def sync(connection: Connection) -> None:
    """Change a page of the database in the transaction that runs, so that its commit flushes the log to the disk.

    Earlier commits are in the same log. SQLite has the log open; flushing it ourselves would need a descriptor.
    """
    value = run(connection, "PRAGMA user_version", ())[0][0]
    run(connection, f"PRAGMA user_version={int(value)}", ())


def _add_functions(connection: sqlite3.Connection, record: object) -> None:
    connection.create_function("may_have_text", -1, may_have_text, deterministic=True)


def _begin(connection: Connection) -> None:
    # A read is one statement and needs no transaction. A write that began as a read could fail when it is upgraded.
    if connection.get_execution_options().get(WRITES) and not _driver(connection).in_transaction:
        run(connection, "BEGIN IMMEDIATE", ())


@contextmanager
def transaction(connection: Connection) -> Generator[None]:
    """Run the block in one transaction, which takes the write lock at once.

    The driver is called directly, as in run(); SQLAlchemy ends only a transaction that it has begun itself.
    """
    run(connection, "BEGIN IMMEDIATE", ())
    try:
        yield
        if _driver(connection).in_transaction:  # a migration ends it itself
            run(connection, "COMMIT", ())
    except BaseException:
        with suppress(sqlite3.Error, SQLAlchemyError):
            _driver(connection).rollback()
        raise
    finally:
        if connection.in_transaction():
            connection.rollback()


def run(connection: Connection, statement: str, values: Sequence[Any]) -> list[Any]:
    """Run a statement as text and return its rows.

    The driver is called directly: SQLAlchemy takes several times as long as a small statement.
    """
    try:
        return _driver(connection).execute(statement, values).fetchall()
    except sqlite3.Error as error:
        raise _as_of_sqlalchemy(statement, error) from error


def run_many(connection: Connection, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    """Run a statement as text for each row; see run()."""
    try:
        _driver(connection).executemany(statement, rows)
    except sqlite3.Error as error:
        raise _as_of_sqlalchemy(statement, error) from error


def _driver(connection: Connection) -> sqlite3.Connection:
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def _as_of_sqlalchemy(statement: str, error: sqlite3.Error) -> BaseException:
    return DBAPIError.instance(statement, None, error, sqlite3.Error, hide_parameters=True)


def upsert(table: Table, *, add: bool) -> Insert:
    """Return an insert that overwrites the row of the same primary key, or adds its numbers to it."""
    statement = insert(table)
    return statement.on_conflict_do_update(
        index_elements=[item.name for item in table.primary_key],
        set_=overwriting(table, statement.excluded, add=add),
    )


def use_wal(connection: Connection) -> None:
    """Let readers and the writer work side by side.

    Raises:
        StoreUnavailable: when the file system does not support that.
    """
    mode = connection.scalar(text("PRAGMA journal_mode=WAL"))
    if mode != "wal":
        raise StoreUnavailable(
            f"{FILE_NAME} lies on a file system without shared memory. Choose a data folder on a local disk."
        )


def check_storage(connection: Connection) -> list[str]:
    rows = connection.execute(text("PRAGMA quick_check(20)"))
    return [str(row[0]) for row in rows if row[0] != "ok"]


_VALUE_ERRORS = {
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
}


def is_database_fault(origin: BaseException) -> bool:
    code = getattr(origin, "sqlite_errorcode", None)
    if code is not None:
        return (code & 0xFF) not in _VALUE_ERRORS
    # Without a code the driver refused: a value it cannot bind, or a connection that is closed.
    return not isinstance(origin, sqlite3.ProgrammingError | sqlite3.InterfaceError) or (
        "closed" in str(origin).lower()
    )


def is_conflict(origin: BaseException) -> bool:
    return False  # there is one writer at a time


_TRANSIENT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}


def is_connection_usable(origin: BaseException) -> bool:
    code = getattr(origin, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in _TRANSIENT


def is_disk_fault(origin: BaseException) -> bool:
    code = getattr(origin, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def violation_of(origin: BaseException) -> Violation:
    message = str(origin)
    if "session.name" in message:
        return "name"
    return "id" if "session.id" in message else "other"


_REMEDIES = {
    sqlite3.SQLITE_BUSY: "is locked by another program. Close that program and try again",
    sqlite3.SQLITE_FULL: "cannot grow because the disk is full. Free some space and try again",
    sqlite3.SQLITE_CORRUPT: "is damaged. Restore a copy, or move it away to begin with an empty one",
    sqlite3.SQLITE_NOTADB: "is not a database. Restore a copy, or move it away to begin with an empty one",
    sqlite3.SQLITE_READONLY: "cannot be written. Check its permissions, or choose another data folder",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Check its permissions, or choose another data folder",
    sqlite3.SQLITE_PERM: "cannot be opened. Check its permissions, or choose another data folder",
    sqlite3.SQLITE_IOERR: "cannot be read or written. Check the disk it lies on",
}
_REMEDIES[sqlite3.SQLITE_LOCKED] = _REMEDIES[sqlite3.SQLITE_BUSY]


def is_damage(error: BaseException | None) -> bool:
    """Whether the opened file is not a database, or cannot be read as one."""
    origin = getattr(error, "orig", None) or error
    code = getattr(origin, "sqlite_errorcode", 0)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def explain(origin: BaseException) -> str:
    code = getattr(origin, "sqlite_errorcode", None)
    remedy = None if code is None else _REMEDIES.get(code & 0xFF)
    if remedy is None:
        remedy = f"failed ({type(origin).__name__}). Run `statehold doctor` to check it"
    return f"{FILE_NAME} {remedy}."
