"""The data folder of an embedded database: its permissions, its opening lock and the identity of its file."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

import anyio

from ...errors import StoreUnavailable
from ..dialect import FILE_NAME, FULL, system_remedy
from .wal import is_orphaned, lengthen, size_of

DAMAGED: Final = ".damaged-"
"""Separates the name of a database that was set aside from the time."""


PROBE: Final = 64 << 10
"""Bytes written to find out whether the disk accepts any."""

LEAST_FREE: Final = 256 << 10
"""Bytes free below which a disk counts as full."""


class DatabaseDamaged(StoreUnavailable):
    """Raised when a part of an existing database is missing."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{FILE_NAME} is damaged: {what}. Restore a copy, or move it away with the {FILE_NAME}-wal beside it to begin "
            "with an empty one."
        )


class DataFolder:
    """A folder that only its user can read, with the database in it. It keeps no file open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / FILE_NAME
        self._identity: tuple[int, int] | None = None

    @asynccontextmanager
    async def hold_lock(self, seconds: float) -> AsyncGenerator[None]:
        """Hold the folder's lock, so that only one process at a time creates or upgrades the database.

        Raises:
            StoreUnavailable: when the folder cannot be used, or another process keeps the lock for longer.
        """
        handle = self._lock_file()
        try:
            with anyio.move_on_after(seconds) as waiting:
                while not _try_lock(handle):  # noqa: ASYNC110 - another process sets no event
                    await anyio.sleep(0.01)
            if waiting.cancelled_caught:
                raise StoreUnavailable(
                    f"{FILE_NAME} is being opened or upgraded by another process. Try again later."
                )
            yield
        finally:
            os.close(handle)

    def _lock_file(self) -> int:
        try:
            self._make()
            return os.open(self.path / f"{FILE_NAME}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unusable(error) from error

    def _make(self) -> None:
        is_new = not self.path.exists()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A folder with other files in it was named by mistake; its mode is not ours to change.
        if not is_new and (self.file.exists() or not any(self.path.iterdir())):
            self.path.chmod(0o700)

    def make_file(self) -> None:
        """Create the file with its permissions, which SQLite also gives to the files beside it.

        Call it only under the lock: closing a file drops the locks that this process holds on it.
        """
        try:
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            self.file.chmod(0o600)
        except OSError as error:
            raise _unusable(error) from error

    def check_log(self) -> None:
        """Refuse a database that SQLite would take for empty, though a log beside it has its content.

        Raises:
            DatabaseDamaged: SQLite must not open the database.
        """
        if is_orphaned(self.file):
            raise DatabaseDamaged(f"it and {FILE_NAME}-wal do not belong together any more")

    def size(self) -> int:
        """Return the bytes of the database and its log; a missing file counts 0."""
        return sum(size_of(path) for path in (self.file, Path(f"{self.file}-wal")))

    def set_aside(self, now: float) -> str:
        """Rename the database and the files that belong to it, so that an empty one can begin. Return the new name.

        Call it only under the lock, with the file closed. Nothing is overwritten.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        names = (f"{FILE_NAME}{DAMAGED}{stamp}{f'-{n}' if n else ''}" for n in count())
        name = next(name for name in names if not any(self.path.glob(f"{name}*")))
        try:
            # The log first: an empty database beside the log of another one would be damaged by it.
            for suffix in ("-wal", "-shm", "-journal", ""):
                old = self.path / f"{FILE_NAME}{suffix}"
                if old.exists():
                    old.rename(self.path / f"{name}{suffix}")
            if (self.path / f"{name}-wal").exists():
                lengthen(self.path / name)  # or SQLite deletes the log when it opens the file
        except OSError as error:
            raise _unusable(error) from error
        return name

    def remember(self) -> None:
        """Note which file was opened."""
        self._identity = self._current()

    def check(self) -> None:
        """Refuse to write to a file that was removed or replaced, since the writes would be lost.

        Raises:
            StoreUnavailable: when the file was removed or replaced since it was opened.
        """
        if not self.is_same():
            raise StoreUnavailable(
                f"{FILE_NAME} was removed or replaced while in use. Restart Statehold to use the new one."
            )

    def is_same(self) -> bool:
        """Whether the file is the one that was opened; True before one was opened."""
        return self._identity is None or self._current() == self._identity

    def probe(self) -> OSError | None:
        """Write a little beside the database; return the error, None when there is none."""
        try:
            with tempfile.TemporaryFile(dir=self.path) as file:
                file.write(bytes(PROBE))
        except OSError as error:
            return error
        return None

    def trouble(self) -> str | None:
        """Return a message if the disk is full, else None. Takes one system call."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return None
        if disk.f_bavail * disk.f_frsize >= LEAST_FREE:
            return None
        return f"{FILE_NAME} {FULL}."

    def _current(self) -> tuple[int, int] | None:
        try:
            stat = self.file.stat()
        except OSError:
            return None
        return (stat.st_dev, stat.st_ino)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise _unusable(error) from error
    return True


def _unusable(error: OSError) -> StoreUnavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
        return StoreUnavailable(f"{FILE_NAME} {system_remedy(error)}.")
    reason = (error.strerror or type(error).__name__).lower()
    return StoreUnavailable(
        f"{FILE_NAME} cannot be opened: {reason}. Choose a data folder on a local disk that you can write to."
    )
