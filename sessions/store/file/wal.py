"""The write-ahead log beside a database file: whether SQLite would delete it with its content."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

PAGE: Final = 4096
EMPTY: Final = 1
"""Most bytes of an empty file: SQLite takes a file of a single byte for empty, too."""
_HEADER, _FRAME = 32, 24
_MAGIC = (0x377F0682, 0x377F0683)


def is_orphaned(file: Path) -> bool:
    """Whether the log of a database has content that SQLite does not use when it opens the file.

    SQLite then takes the database for empty and deletes the log. This check changes neither. A file that was ever
    checkpointed has more than its first page, and is not checked further.
    """
    log = Path(f"{file}-wal")
    size, log_size = size_of(file), size_of(log)
    if size > PAGE or log_size == 0:
        return False
    if size <= EMPTY:
        return True
    return log_size > _HEADER and not _has_tables(file) and _was_written(log, log_size)


def size_of(file: Path) -> int:
    """Return the bytes of a file, 0 if it does not exist."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _has_tables(file: Path) -> bool:
    """Return whether the file has tables; also True if it cannot be read for another reason than its content."""
    try:
        # A read-only connection leaves the WAL in place.
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _was_written(log: Path, size: int) -> bool:
    """Return whether the log has more than its first transaction, which creates the tables.

    A process that was killed during that one left no data.
    """
    with log.open("rb") as file:
        header = file.read(_HEADER)
        page = int.from_bytes(header[8:12])
        # The header was on the disk before anything came after it: if it is not valid, that was damage.
        if int.from_bytes(header[:4]) not in _MAGIC or not 512 <= page <= 65536:
            return True
        for start in range(_HEADER, size, _FRAME + page):
            file.seek(start + 4)
            if file.read(4).strip(b"\0"):  # it ends a transaction
                return size > start + _FRAME + page
    return False


def lengthen(file: Path) -> None:
    """Extend an empty file to a page, so that SQLite reads the log beside it instead of deleting it. Leave other files."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size <= EMPTY:
            os.ftruncate(handle, PAGE)
    finally:
        os.close(handle)
