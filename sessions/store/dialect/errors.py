"""The outcome of a statement in the terms of the store, for every driver."""

from __future__ import annotations

import errno
from importlib import import_module
from typing import Final, Protocol, cast

from sqlalchemy.exc import DBAPIError, InvalidRequestError

from ...errors import StoreUnavailable
from . import sqlite
from .values import Violation


class _Explains(Protocol):
    """The part of a database's own file that reads its errors."""

    def is_database_fault(self, origin: BaseException) -> bool: ...
    def is_conflict(self, origin: BaseException) -> bool: ...
    def violation_of(self, origin: BaseException) -> Violation: ...
    def is_connection_usable(self, origin: BaseException) -> bool: ...
    def is_disk_fault(self, origin: BaseException) -> bool: ...
    def explain(self, origin: BaseException) -> str: ...


_FILES = {"sqlite3": "sqlite", "psycopg": "postgresql", "asyncmy": "mysql"}


def _reader_of(origin: BaseException) -> _Explains | None:
    name = _FILES.get(type(origin).__module__.partition(".")[0])
    # The file of another database than SQLite is loaded already: nothing else can have raised its errors.
    return None if name is None else cast("_Explains", import_module(f".{name}", __package__))


def _origin(error: BaseException) -> BaseException:
    return error.orig or error if isinstance(error, DBAPIError) else error


def is_database_fault(error: BaseException) -> bool:
    """Whether the database failed, rather than the request."""
    origin = _origin(error)
    reader = _reader_of(origin)
    if reader is None:
        return isinstance(origin, StoreUnavailable | InvalidRequestError | OSError)
    return is_connection_lost(error) or reader.is_database_fault(origin)


def is_conflict(error: BaseException) -> bool:
    """Whether a transaction was undone because of another one, and is worth running again."""
    origin = _origin(error)
    reader = _reader_of(origin)
    return reader is not None and reader.is_conflict(origin)


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection is gone."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def is_connection_usable(error: BaseException) -> bool:
    """Return True if the connection works again as soon as the cause of the error is gone."""
    origin = _origin(error)
    reader = _reader_of(origin)
    return isinstance(origin, OSError) if reader is None else reader.is_connection_usable(origin)


def violation_of(error: BaseException) -> Violation:
    """Return the unique constraint that a refused row violates."""
    origin = _origin(error)
    reader = _reader_of(origin)
    return "other" if reader is None else reader.violation_of(origin)


def is_disk_fault(error: BaseException) -> bool:
    """Return True if the database does not say why the disk refused, so that a test of the disk tells more."""
    origin = _origin(error)
    reader = _reader_of(origin)
    return reader is not None and reader.is_disk_fault(origin)


def explain(error: Exception, system: OSError | None = None) -> str:
    """Return one line on what is wrong with the database and what to do. It has no folder, address or value.

    `system` is the error of the operating system behind it, where that is known.
    """
    origin = _origin(error)
    reader = _reader_of(origin)
    if system is None and isinstance(origin, OSError):
        system = origin
    if system is not None:
        return f"{sqlite.FILE_NAME} {system_remedy(system)}."
    if reader is None:
        return f"The database failed ({type(origin).__name__}). Run `statehold doctor` to check it."
    return reader.explain(origin)


FULL: Final = "cannot grow because the disk is full. Free some space and try again"
_SYSTEM: Final = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: "cannot grow because the disk quota is used up. Free some space and try again",
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE),
        "cannot open a file: too many open files. Close some connections, or raise the limit (ulimit -n)",
    ),
    errno.EIO: "cannot be read or written. Check the disk it lies on",
    errno.EROFS: "lies on a disk that is mounted read-only. Choose another data folder",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM),
        "cannot be written. Check its permissions, or choose another data folder",
    ),
}


def system_remedy(error: OSError) -> str:
    """Return the meaning of an operating system error for the database, and the remedy; no subject and no full stop."""
    remedy = _SYSTEM.get(error.errno or 0)
    reason = (error.strerror or type(error).__name__).lower()
    return remedy or f"failed: {reason}. Run `statehold doctor` to check it"
