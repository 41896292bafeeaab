"""MariaDB, through asyncmy. Loaded when a store is on it.

Settings that only its tables need are added when the tables are created, so that the migrations need not know them: texts
without a limit, short texts in indexes, and comparison by character. It has no partial indexes; a computed column replaces
the one that must be unique.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from sqlalchemy import URL, Connection, LargeBinary, Table, Text, text
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable
from sqlalchemy.sql.dml import Insert

from ...errors import StoreUnavailable
from .values import PackedTexts, Violation, overwriting

_UPGRADE_SECONDS: Final = 30


def options(url: URL, busy_seconds: float, *, reads: bool) -> dict[str, Any]:
    """Return the arguments of an engine; connection settings in the URL take precedence."""
    converters: Any = import_module("asyncmy.converters")

    def integer(value: int, mapping: Any) -> str:
        if not -(2**63) <= value < 2**63:
            raise OverflowError("an integer of more than 64 bits")
        return str(value)

    def one_of(values: PackedTexts, mapping: Any) -> str:
        return f"({','.join(converters.escape_str(value) for value in values) or 'NULL'})"

    settings = (
        f"innodb_lock_wait_timeout = {max(1, round(busy_seconds))}",
        # Refuse values that do not fit instead of cutting them off, and let a backslash escape: the driver counts on it.
        "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    )
    defaults: dict[str, Any] = {
        "charset": "utf8mb4",
        "connect_timeout": 5,
        "read_timeout": 60,
        "conv": {**converters.conversions, int: integer, PackedTexts: one_of},
        "init_command": f"SET SESSION {', SESSION '.join(settings)}",
    }
    arguments = {key: value for key, value in defaults.items() if key not in url.query}
    if "ssl" in url.query:
        arguments["ssl"] = True  # the driver does not take the text of the URL
    return {"connect_args": arguments}


def upsert(table: Table, *, add: bool) -> Insert:
    """Return an insert that overwrites the row of the same primary key, or adds its numbers to it."""
    statement = insert(table)
    return statement.on_duplicate_key_update(overwriting(table, statement.inserted, add=add))


_NAME: Final = "SHA1(CONCAT('statehold ', DATABASE()))"


@contextmanager
def upgrading(connection: Connection) -> Generator[None]:
    """Keep every other process from creating or upgrading the database.

    Raises:
        StoreUnavailable: when another process takes too long.
    """
    if not connection.scalar(text(f"SELECT GET_LOCK({_NAME}, {_UPGRADE_SECONDS})")):
        raise StoreUnavailable(
            "The database is being made or upgraded by another program. Try again when that is done."
        )
    try:
        yield
        # The lock is not bound to transactions: its next holder must see the changes.
        connection.execute(text("COMMIT"))
    finally:
        connection.execute(text(f"SELECT RELEASE_LOCK({_NAME})")).all()


def check_storage(connection: Connection) -> list[str]:
    tables = connection.execute(text("SHOW TABLES")).scalars().all()
    names = ", ".join(f"`{name}`" for name in tables)
    rows = connection.execute(text(f"CHECK TABLE {names} QUICK")) if names else ()
    return [f"{row[0]}: {row[3]}" for row in rows if row[2] != "status" or row[3] != "OK"]


_SHORT: Final = {
    "owner": 512,
    "namespace": 128,
    "name": 128,
    "node": 128,
    "status": 64,
    "kind": 32,
    "tool": 160,
    "run": 128,
    "role": 64,
    "operation_id": 128,
}
"""The texts that an index holds, with room for the longest that the sessions allow."""


@compiles(Text, "mysql")
def _text(element: Text, compiler: Any, **_: Any) -> str:
    return "LONGTEXT"


@compiles(LargeBinary, "mysql")
def _bytes(element: LargeBinary, compiler: Any, **_: Any) -> str:
    return "LONGBLOB"


@compiles(CreateColumn, "mysql")
def _column(element: CreateColumn, compiler: Any, **arguments: Any) -> str | None:
    definition: str | None = compiler.visit_create_column(element, **arguments)
    length = _SHORT.get(element.element.name)
    return (
        definition.replace(" LONGTEXT", f" VARCHAR({length})", 1)
        if definition and length
        else definition
    )


@compiles(CreateTable, "mysql")
def _table(element: CreateTable, compiler: Any, **arguments: Any) -> str:
    # Both collations distinguish case, accents and trailing blanks.
    mariadb = getattr(compiler.dialect, "is_mariadb", True)
    collation = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
    definition: str = compiler.visit_create_table(element, **arguments)
    return f"{definition.rstrip()} ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {collation}"


_OPEN_NAME: Final = (
    "CASE WHEN status NOT IN ('closing', 'closed') AND name IS NOT NULL THEN "
    "SHA2(CONCAT(CHAR_LENGTH(owner), '.', CHAR_LENGTH(namespace), ':', owner, namespace, name), 256) END"
)


@compiles(CreateIndex, "mysql")
def _index(element: CreateIndex, compiler: Any, **arguments: Any) -> str:
    if element.element.name != "session_name":
        return compiler.visit_create_index(element, **arguments)
    return (
        f"ALTER TABLE session ADD COLUMN open_name CHAR(64) CHARACTER SET ascii AS ({_OPEN_NAME}) STORED, "
        "ADD UNIQUE INDEX session_name (open_name)"
    )


_CONFLICTS: Final = {1213, 1305}
"""A deadlock, and the savepoint that it took along."""
_VALUE_ERRORS: Final = {1153, 1406, 1264, 1366, 1690}
"""Errors caused by values that are too large or not valid, besides those that the driver classifies so."""


def _code(origin: BaseException) -> int:
    code = origin.args[0] if origin.args else 0
    return code if isinstance(code, int) else 0


def _is(origin: BaseException, *names: str) -> bool:
    return any(base.__name__ in names for base in type(origin).__mro__)


def is_database_fault(origin: BaseException) -> bool:
    return _code(origin) not in _VALUE_ERRORS and not _is(origin, "DataError", "IntegrityError")


def is_conflict(origin: BaseException) -> bool:
    return _code(origin) in _CONFLICTS


def is_connection_usable(origin: BaseException) -> bool:
    return False  # a new connection is cheap, and the server has freed the old one's resources


def is_disk_fault(origin: BaseException) -> bool:
    return False  # its disk is another machine's


def violation_of(origin: BaseException) -> Violation:
    message = str(origin)
    if _code(origin) != 1062:
        return "other"
    if message.endswith(("session_name'\")", "session_name')")):
        return "name"
    return "id" if message.endswith(("PRIMARY'\")", "PRIMARY')")) else "other"


_REMEDIES: Final = {
    1021: "cannot grow because the disk of its server is full. Free some space and try again",
    1040: "has no connection left. Raise max_connections, or close other programs",
    1044: "does not let the user of store.url in. Grant it everything in the database",
    1045: "refuses the user or the password. Check store.url",
    1049: "does not exist. Create it, or check store.url",
    1053: "is shutting down. Try again",
    1114: "cannot grow because the disk of its server is full. Free some space and try again",
    1142: "does not let its user do this. Grant the user of store.url everything in the database",
    1205: "is locked by another program. Close that program and try again",
    1213: "is busy with other programs. Try again",
    1290: "can only be read: is it a replica? Check store.url",
    1698: "refuses the user or the password. Check store.url",
}


def explain(origin: BaseException) -> str:
    code = _code(origin)
    remedy = _REMEDIES.get(code)
    if remedy is None and (code == 0 or 2000 <= code < 3000):
        remedy = "cannot be reached. Check that its server runs, and store.url"
    if remedy is None:
        remedy = f"failed ({type(origin).__name__} {code}). Look at the logs of its server"
    return f"The database {remedy}."
