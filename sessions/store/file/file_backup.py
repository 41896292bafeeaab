"""Copying the database of a data folder while processes use it."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from ...errors import StoreUnavailable
from ..dialect import FILE_NAME, explain
from .store_folder import DataFolder

PAGES: Final = 1000
"""The pages that are copied between two reports: about 4 MB."""


def back_up(folder: Path, target: Path, *, report: Callable[[int, int], None] | None = None) -> int:
    """Copy the database of a data folder into a new file that only its user can read. Return its size.

    The copy is complete and of one moment; later writes are not in it and do not wait for it. It is one file, which
    can replace a database as it is. It appears when it is complete, checked and on the disk. `report` gets the pages that
    are copied, and those that there are.

    Raises:
        StoreUnavailable: when there is nothing to copy, it is damaged, or the copy cannot be written; no part of it is left.
        FileExistsError: when the target exists already.
    """
    source = folder / FILE_NAME
    if not source.exists():
        raise StoreUnavailable(
            f"There is no {FILE_NAME} in the data folder: nothing is stored yet."
        )
    DataFolder(folder).check_log()
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _copy(source, draft, report)
        _to_disk(draft)
        # Unlike a rename, a link never replaces a file that was created meanwhile.
        os.link(draft, target)
        _to_disk(target.parent)
        return target.stat().st_size
    except FileExistsError:
        raise
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise StoreUnavailable(f"The copy cannot be written: {reason}.") from error
    finally:
        for suffix in ("", "-journal"):
            with suppress(OSError):
                Path(f"{draft}{suffix}").unlink()


def _copy(source: Path, draft: Path, report: Callable[[int, int], None] | None) -> None:
    # No thread and no waiting for others: a reader of a write-ahead log blocks no other connection.
    with (
        closing(sqlite3.connect(source, timeout=5.0)) as ours,
        closing(sqlite3.connect(draft)) as copy,
    ):
        try:
            # A copy in steps is of one moment only within one transaction; without it a write would start it again.
            ours.execute("BEGIN")
            ours.execute("SELECT count(*) FROM sqlite_master").close()
        except sqlite3.Error as error:
            raise StoreUnavailable(explain(error)) from error
        try:
            ours.backup(copy, pages=PAGES, progress=_on_pages(report))
            problems = [row[0] for row in copy.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
        except sqlite3.Error as error:
            raise _copy_error(error) from error
        if problems:
            raise StoreUnavailable(f"{FILE_NAME} is damaged, and so would be the copy. {_HINT}")
        try:
            # Mark all nodes dead: the processes that run now do not own the sessions of the copy.
            copy.execute("UPDATE node SET state = 'dead'")
            copy.commit()
            copy.execute("PRAGMA journal_mode=DELETE").close()
        except sqlite3.Error as error:
            raise _copy_error(error) from error


def _on_pages(
    report: Callable[[int, int], None] | None,
) -> Callable[[int, int, int], object] | None:
    """Return what SQLite calls after each step, with its result, the pages that remain and those that there are."""
    if report is None:
        return None
    return lambda _, remaining, total: report(total - remaining, total)


_HINT = "`statehold doctor` says more."


def _copy_error(error: sqlite3.Error) -> StoreUnavailable:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreUnavailable(f"{FILE_NAME} is damaged, and so would be the copy. {_HINT}")
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable("The copy cannot be written: the disk is full. Free some space.")
    return StoreUnavailable(f"The copy cannot be written ({error}).")


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
