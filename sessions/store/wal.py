"""The write-ahead log beside a database file: whether SQLite would throw it away, with all that is in it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

PAGE: Final = 4096
EMPTY: Final = 1
"""How many bytes an empty file has at most: SQLite takes one of a single byte for empty, too."""
_HEADER, _FRAME = 32, 24
_MAGIC = (0x377F0682, 0x377F0683)


def is_orphaned(file: Path) -> bool:
    """Whether there is something in the log of a database that SQLite does not find when it opens the file.

    SQLite then takes the database for an empty one, and removes the log. Looking changes neither, and nothing is done for a
    file that was ever checkpointed: it has more than its first page.
    """
    log = Path(f"{file}-wal")
    size, log_size = size_of(file), size_of(log)
    if size > PAGE or log_size == 0:
        return False
    if size <= EMPTY:
        return True
    return log_size > _HEADER and not _has_tables(file) and _was_written(log, log_size)


def size_of(file: Path) -> int:
    """Bytes of a file, none where there is no such file."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _has_tables(file: Path) -> bool:
    """Also True when something else than its content keeps it from being read."""
    try:
        # Who may only read does not clear up behind itself.
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as found:
            return bool(found.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _was_written(log: Path, size: int) -> bool:
    """Whether more came into the log than its first transaction, which makes the tables.

    Who was killed during that one left nothing that anybody could miss.
    """
    with log.open("rb") as opened:
        header = opened.read(_HEADER)
        page = int.from_bytes(header[8:12])
        # It was on the disk before anything came after it: if it is not valid, that was damage.
        if int.from_bytes(header[:4]) not in _MAGIC or not 512 <= page <= 65536:
            return True
        for start in range(_HEADER, size, _FRAME + page):
            opened.seek(start + 4)
            if opened.read(4).strip(b"\0"):  # it ends a transaction
                return size > start + _FRAME + page
    return False


def lengthen(file: Path) -> None:
    """Give an empty file a page, which makes SQLite read the log beside it instead of removing it. Change no other."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size <= EMPTY:
            os.ftruncate(handle, PAGE)
    finally:
        os.close(handle)


__all__ = ["is_orphaned", "lengthen", "size_of"]
