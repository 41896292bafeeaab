"""Everything that differs between databases. A second one gets its branch here, and nowhere else."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, cast

from sqlalchemy import (
    URL,
    ClauseElement,
    ColumnElement,
    Connection,
    Double,
    Engine,
    String,
    Table,
    bindparam,
    column,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.pool import NullPool
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert

from ..errors import StoreUnavailable

FILE_NAME = "statehold.db"

WRITES = "statehold_writes"
"""The execution option of a connection whose transactions take the write lock at once."""

# What every connection needs. An acknowledged write survives a power cut (synchronous=FULL); what was deleted is zeroed
# where that costs no extra page (secure_delete=FAST).
_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=FAST",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA journal_size_limit=67108864",
)


class _SQLiteConnection(sqlite3.Connection):
    """A connection with the settings that every connection needs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for pragma in _PRAGMAS:
            self.execute(pragma).close()


def make_engine(file: Path | None, busy_seconds: float) -> Engine:
    """Return an engine for a file, or for an in-memory database when there is none. Connects to nothing yet."""
    database = ":memory:" if file is None else str(file)
    options: dict[str, Any] = {
        "factory": _SQLiteConnection,
        "isolation_level": None,  # the driver begins nothing by itself
        "timeout": busy_seconds,
    }
    engine = create_engine(
        URL.create("sqlite", database=database),
        poolclass=NullPool,
        connect_args=options,
        hide_parameters=True,  # errors are logged, what was written is secret
    )
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    # A read is one statement and needs no transaction. A write that began as a read could fail when it is upgraded.
    if connection.get_execution_options().get(WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


@cache
def upsert(table: Table) -> Insert:
    """Return an insert that overwrites the row of the same primary key."""
    statement = insert(table)
    keys = [item.name for item in table.primary_key]
    rest = {item.name: statement.excluded[item.name] for item in table.c if item.name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=rest)


@cache
def accumulate(table: Table) -> Insert:
    """Return an insert that adds its numbers to those in the row of the same primary key."""
    statement = insert(table)
    keys = [item.name for item in table.primary_key]
    sums = {
        item.name: item + statement.excluded[item.name] for item in table.c if item.name not in keys
    }
    return statement.on_conflict_do_update(index_elements=keys, set_=sums)


@cache
def _compiled(statement: ClauseElement) -> tuple[str, Callable[[Mapping[str, Any]], Any]]:
    compiled = cast("SQLCompiler", statement.compile(dialect=SQLiteDialect_pysqlite()))
    assert compiled.positiontup
    return compiled.string, itemgetter(*compiled.positiontup)


def execute_many(
    connection: Connection, statement: ClauseElement, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Run a statement of at least two parameters for each row.

    The statement must be one object for the life of the process. Rows are plain values already, so that nothing has to
    convert them: that is half the time of a batch.
    """
    if rows:
        string, values = _compiled(statement)
        connection.exec_driver_sql(string, [values(row) for row in rows])


def fetch(
    connection: Connection, statement: ClauseElement, values: Mapping[str, Any]
) -> Sequence[Any]:
    """Run a statement with one parameter and return its rows; the rules of execute_many() hold."""
    string, _ = _compiled(statement)
    return connection.exec_driver_sql(string, tuple(values.values())).all()


def among(item: ColumnElement[str], name: str = "ids") -> ColumnElement[bool]:
    """Whether a column is one of the ids that are passed as one parameter (see `packed`)."""
    rows = func.json_each(bindparam(name, type_=String())).table_valued(column("value", String))
    return item.in_(select(rows.c.value))


def packed(ids: Iterable[str]) -> str:
    """The value of the parameter of `among`."""
    return json.dumps(list(ids))


def earlier(first: ColumnElement[float], second: ColumnElement[float]) -> ColumnElement[float]:
    """The smaller of two numbers, neither of them null."""
    return func.min(first, second, type_=Double())


Violated = Literal["name", "id", "other"]


def violated(error: BaseException) -> Violated:
    """Tell which unique constraint a refused row ran into."""
    found = str(error.orig) if isinstance(error, DBAPIError) else ""
    if "session.name" in found:
        return "name"
    return "id" if "session.id" in found else "other"


_UNIT = {
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
}


def blames_database(error: BaseException) -> bool:
    """Whether the database failed, rather than what was asked of it."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(origin, sqlite3.Error):
        return isinstance(origin, StoreUnavailable | InvalidRequestError)
    code = getattr(origin, "sqlite_errorcode", None)
    if code is not None:
        return (code & 0xFF) not in _UNIT
    # Without a code the driver refused: a value it cannot bind, or a connection that is closed.
    return not isinstance(origin, sqlite3.ProgrammingError | sqlite3.InterfaceError) or (
        "closed" in str(origin).lower()
    )


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


def explain(error: Exception, name: str = FILE_NAME) -> str:
    """Say in one line what is wrong with the database and what to do. Never a folder, never a value."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(origin, "sqlite_errorcode", None)
    remedy = None if code is None else _REMEDIES.get(code & 0xFF)
    if remedy is None:
        remedy = f"failed ({type(origin).__name__}). Run `statehold doctor` to check it"
    return f"{name} {remedy}."


def check_storage(connection: Connection) -> list[str]:
    """What the database itself finds wrong, one line each."""
    found = connection.execute(text("PRAGMA quick_check(20)"))
    return [str(row[0]) for row in found if row[0] != "ok"]


def use_wal(connection: Connection) -> None:
    """Let readers and the writer work side by side.

    Raises:
        StoreUnavailable: when the file system cannot do that.
    """
    mode = connection.scalar(text("PRAGMA journal_mode=WAL"))
    if mode != "wal":
        raise StoreUnavailable(
            f"{FILE_NAME} lies on a file system without shared memory. Choose a data folder on a local disk."
        )
