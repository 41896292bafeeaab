"""The statements that the store runs on any database, and how they are run there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import itemgetter
from typing import Any, Self, cast

from sqlalchemy import (
    Boolean,
    ClauseElement,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    String,
    Table,
    bindparam,
    column,
    func,
    literal,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeEngine

from . import sqlite
from .values import PackedTexts


@dataclass(frozen=True, slots=True)
class Upsert:
    """An insert that overwrites the row of the same primary key, or adds its numbers to those in it."""

    table: Table
    add: bool = False


def upsert(table: Table) -> Upsert:
    """Return an insert that overwrites the row of the same primary key."""
    return Upsert(table)


def accumulate(table: Table) -> Upsert:
    """Return an insert that adds its numbers to those in the row of the same primary key."""
    return Upsert(table, add=True)


def _dialect_module(name: str) -> Any:
    """Return the module of a database, by the name of its dialect."""
    return sqlite if name == "sqlite" else import_module(f".{name}", __package__)


_Run = tuple[str, Any]


@cache
def _of_sqlite(statement: ClauseElement | Upsert) -> _Run:
    return _prepare(statement, sqlite.DIALECT)


_others: dict[tuple[str, ClauseElement | Upsert], _Run] = {}


def _prepared_text(connection: Connection, statement: ClauseElement | Upsert) -> _Run:
    """Return the text of a statement, and a function from a row to its parameters (None: the row itself)."""
    dialect = connection.dialect
    if dialect.name == "sqlite":
        return _of_sqlite(statement)
    key = (dialect.name, statement)
    prepared = _others.get(key)
    if prepared is None:
        prepared = _others[key] = _prepare(statement, dialect)
    return prepared


def _prepare(statement: ClauseElement | Upsert, dialect: Dialect) -> _Run:
    compiled = _compile(statement, dialect)
    names = compiled.positiontup
    return compiled.string, itemgetter(*names) if names else None


def _compile(statement: ClauseElement | Upsert, dialect: Dialect) -> SQLCompiler:
    if isinstance(statement, Upsert):
        insert: Insert = _dialect_module(dialect.name).upsert(statement.table, add=statement.add)
    else:
        insert = cast("Insert", statement)
    return insert.compile(dialect=dialect)


def transaction(connection: Connection) -> AbstractContextManager[object]:
    """Run the block in one transaction, if the connection writes."""
    if connection.dialect.name == "sqlite" and connection.get_execution_options().get(
        sqlite.WRITES
    ):
        return sqlite.transaction(connection)
    return connection.begin()


def execute_many(
    connection: Connection, statement: ClauseElement | Upsert, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Run a statement of at least two parameters for each row.

    The statement must be one object for the life of the process. Rows are plain values already, so that nothing has to
    convert them: that is half the time of a batch.
    """
    if not rows:
        return
    if isinstance(statement, Upsert) and connection.dialect.name == "postgresql":
        own = _dialect_module("postgresql")
        own.upsert_many(connection, statement.table, rows, add=statement.add)
    else:
        string, values = _prepared_text(connection, statement)
        parameters: list[Any] = list(rows if values is None else map(values, rows))
        if connection.dialect.name == "sqlite":
            sqlite.run_many(connection, string, parameters)
        else:
            connection.exec_driver_sql(string, parameters)


def fetch(
    connection: Connection, statement: ClauseElement, values: Mapping[str, Any]
) -> Sequence[Any]:
    """Run a statement with one parameter and return its rows; the rules of execute_many() hold."""
    string, positional = _prepared_text(connection, statement)
    if connection.dialect.name == "sqlite":
        return sqlite.run(connection, string, tuple(values.values()))
    parameters = dict(values) if positional is None else tuple(values.values())
    return connection.exec_driver_sql(string, parameters).all()


class _Among(FunctionElement[bool]):
    """Whether its first argument is one of those packed in its second."""

    name = "among"
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> Self:
        # In a conjunction SQLAlchemy would add `= 1` for SQLite, which then uses no index.
        return self


def among(item: ColumnElement[str], name: str = "ids") -> ColumnElement[bool]:
    """Return the condition that a column is one of the ids passed as one parameter (see `pack_ids`)."""
    return _Among(item, bindparam(name))


def pack_ids(ids: Iterable[str]) -> PackedTexts:
    """Return the value of the parameter of `among`."""
    return PackedTexts(ids)


def _both(element: _Among, compiler: SQLCompiler, options: dict[str, Any]) -> tuple[str, str]:
    item, ids = element.clauses
    return compiler.process(item, **options), compiler.process(ids, **options)


@compiles(_Among)
def _among_sqlite(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    item, ids = element.clauses
    rows = func.json_each(ids).table_valued(column("value", String))
    return compiler.process(item.in_(select(rows.c.value)), **options)


@compiles(_Among, "postgresql")
def _among_postgresql(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    item, ids = _both(element, compiler, options)
    return f"{item} = ANY ({ids}::text[])"


@compiles(_Among, "mysql")
def _among_mysql(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    item, ids = _both(element, compiler, options)
    return f"{item} IN {ids}"


class _Earlier(FunctionElement[float]):
    name = "earlier"
    type: TypeEngine[float] = Double()
    inherit_cache = True


def earlier(first: ColumnElement[float], second: ColumnElement[float]) -> ColumnElement[float]:
    """Return the smaller of two numbers. If one of them is null, it is null or the other one, depending on the database."""
    return _Earlier(first, second)


@compiles(_Earlier)
def _earlier(element: _Earlier, compiler: SQLCompiler, **options: Any) -> str:
    name = "min" if compiler.dialect.name == "sqlite" else "least"
    return f"{name}({', '.join(compiler.process(item, **options) for item in element.clauses)})"


class _MayHaveText(FunctionElement[bool]):
    """`may_have_text()` in a query. Only SQLite runs our function; on other databases it is true."""

    inherit_cache = True
    type = Boolean()


def rows_with_text(text: str, columns: Sequence[ColumnElement[Any]]) -> ColumnElement[bool]:
    """Return a condition that is true for each row in which a column has a text in small letters, and for some others."""
    return _MayHaveText(literal(text), *columns)


@compiles(_MayHaveText)
def _may_have_text(element: _MayHaveText, compiler: SQLCompiler, **options: Any) -> str:
    if compiler.dialect.name != "sqlite":
        return "1 = 1"
    return (
        f"may_have_text({', '.join(compiler.process(item, **options) for item in element.clauses)})"
    )


def wait_for_exclusive(connection: Connection, table: Table) -> None:
    """Wait for every other transaction that calls this, and hold off later ones until this one ends.

    The table always has one row. A transaction of SQLite is alone from its beginning.
    """
    if connection.dialect.name != "sqlite":
        connection.execute(select(*table.c).with_for_update()).all()


def check_storage(connection: Connection) -> list[str]:
    """Return the faults that the database itself finds, one line each."""
    return _dialect_module(connection.dialect.name).check_storage(connection)


def database_name(connection: Connection) -> str:
    """Return the name of the database in messages."""
    return sqlite.FILE_NAME if connection.dialect.name == "sqlite" else "The database"
