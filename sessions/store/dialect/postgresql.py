"""PostgreSQL, through psycopg. Loaded when a store is on it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from sqlalchemy import URL, BigInteger, Connection, Double, LargeBinary, Table, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex

from .values import Violation

_KEY: Final = int.from_bytes(b"statehol")
"""Number of the lock that one process at a time holds to create or upgrade the database."""
_UPGRADE_SECONDS: Final = 30


def options(url: URL, busy_seconds: float, *, reads: bool) -> dict[str, Any]:
    """Return the arguments of an engine; connection settings in the URL take precedence."""
    wait = max(1, round(busy_seconds * 1000))
    # A plan for the average owner would sort all sessions of an owner of many for each page.
    plans = " -c plan_cache_mode=force_custom_plan" if reads else ""
    defaults = {
        "application_name": "statehold",
        "connect_timeout": "5",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "30000",
        # A process that is stopped, or cut off, must not hold the locks of its sessions when other nodes take them over.
        "options": f"-c lock_timeout={wait} -c idle_in_transaction_session_timeout=10000{plans}",
    }
    arguments = {key: value for key, value in defaults.items() if key not in url.query}
    return {"connect_args": arguments, "use_native_hstore": False}


_ARRAYS: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    BigInteger: ("bigint[]", int),
    Double: ("float8[]", float),
    LargeBinary: ("bytea[]", bytes),
}
_TEXTS: Final = ("text[]", str)


class _Upsert:
    """One statement for any number of rows, with one array per column; one statement per row takes many times as long."""

    def __init__(self, table: Table, *, add: bool) -> None:
        self._keys = [column.name for column in table.primary_key]
        kinds = {column.name: _ARRAYS.get(type(column.type), _TEXTS) for column in table.c}
        self._columns = {name: kind for name, (_, kind) in kinds.items()}
        arrays = ", ".join(f"%({name})b::{array}" for name, (array, _) in kinds.items())
        old = f"{table.name}." if add else ""
        new = ", ".join(
            f"{name} = {old}{name} + excluded.{name}" if add else f"{name} = excluded.{name}"
            for name in kinds
            if name not in self._keys
        )
        self.text = (
            f"INSERT INTO {table.name} ({', '.join(kinds)}) SELECT * FROM unnest({arrays}) "
            f"ON CONFLICT ({', '.join(self._keys)}) DO UPDATE SET {new}"
        )

    def arrays(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """Return the parameters of the statement. The last of several rows with one key counts: each is written once."""
        if len(rows) > 1:
            rows = [*{tuple(row[key] for key in self._keys): row for row in rows}.values()]
        # An array has one type, which neither an integer among numbers nor an enumeration among texts may spoil.
        return {
            name: [None if (value := row[name]) is None else kind(value) for row in rows]
            for name, kind in self._columns.items()
        }


_upsert = cache(_Upsert)


def upsert_many(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *, add: bool
) -> None:
    """Insert rows, each of which overwrites the row of the same primary key or adds its numbers to it."""
    statement = _upsert(table, add=add)
    connection.exec_driver_sql(statement.text, statement.arrays(rows))


@compiles(CreateIndex, "postgresql")
def _index(element: CreateIndex, compiler: Any, **arguments: Any) -> str:
    # The tables give the condition for SQLite alone: naming PostgreSQL there would load its dialect at every start.
    options: Any = element.element.dialect_options
    if options["postgresql"]["where"] is None:
        options["postgresql"]["where"] = options["sqlite"]["where"]
    if element.element.name == "session_named":
        # Without it, only the collation C finds the beginning of a text.
        options["postgresql"]["ops"] = {"name": "text_pattern_ops"}
    statement: str = compiler.visit_create_index(element, **arguments)
    return statement


@contextmanager
def upgrading(connection: Connection) -> Generator[None]:
    """Keep every other process from creating or upgrading the database, until the transaction ends."""
    connection.execute(text(f"SET LOCAL lock_timeout = '{_UPGRADE_SECONDS}s'"))
    connection.execute(text(f"SELECT pg_advisory_xact_lock({_KEY})"))
    yield


def check_storage(connection: Connection) -> list[str]:
    """Return no faults: PostgreSQL checks what it reads by itself, and its own tools find out whether all can be read."""
    return []


_VALUE_ERRORS = ("22", "23", "54")
"""Classes of errors caused by values: not valid, not unique, too large."""
_CONFLICTS = {"40001", "40P01"}


def _state(origin: BaseException) -> str:
    return getattr(origin, "sqlstate", None) or ""


def _is(origin: BaseException, *names: str) -> bool:
    return any(base.__name__ in names for base in type(origin).__mro__)


def is_database_fault(origin: BaseException) -> bool:
    state = _state(origin)
    if state:
        return not state.startswith(_VALUE_ERRORS)
    # Without a state the driver refused: a value it cannot send, or a connection that is closed.
    return not _is(origin, "DataError", "ProgrammingError", "NotSupportedError")


def is_conflict(origin: BaseException) -> bool:
    return _state(origin) in _CONFLICTS


def is_connection_usable(origin: BaseException) -> bool:
    return False  # a new connection is cheap, and the server has freed the old one's resources


def is_disk_fault(origin: BaseException) -> bool:
    return False  # its disk is another machine's


def violation_of(origin: BaseException) -> Violation:
    constraint = getattr(getattr(origin, "diag", None), "constraint_name", None)
    if constraint == "session_name":
        return "name"
    return "id" if constraint == "session_pkey" else "other"


_REMEDIES = {
    "28": "refuses the user or the password. Check store.url",
    "3D": "does not exist. Create it, or check store.url",
    "3F": "has no schema that can be used. Check store.url and the search_path of its user",
    "08": "cannot be reached. Check that its server runs, and store.url",
    "57P": "is starting or shutting down. Try again",
    "25P": "ended a transaction that took too long. Try again",
    "25006": "can only be read: is it a standby? Check store.url",
    "40": "is busy with other programs. Try again",
    "42501": "does not let its user do this. Make the user of store.url the owner of the database",
    "53100": "cannot grow because the disk of its server is full. Free some space and try again",
    "53300": "has no connection left. Raise max_connections, or close other programs",
    "53": "has too little memory or space. Look at the logs of its server",
    "55P03": "is locked by another program. Close that program and try again",
    "XX": "is damaged, or its server failed. Look at the logs of its server",
}
_WORDS = {"28": ("authentication", "password"), "3D": ("does not exist",)}
"""Words of the client library for a connection that the server refused."""


def explain(origin: BaseException) -> str:
    state = _state(origin)
    remedy = next(
        (_REMEDIES[key] for key in (state, state[:3], state[:2]) if key in _REMEDIES), None
    )
    if remedy is None and not state and _is(origin, "OperationalError", "InterfaceError"):
        message = str(origin).lower()
        kinds = (kind for kind, words in _WORDS.items() if any(word in message for word in words))
        remedy = _REMEDIES[next(kinds, "08")]
    if remedy is None:
        remedy = f"failed ({type(origin).__name__}). Look at the logs of its server"
    return f"The database {remedy}."
