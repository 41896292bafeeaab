"""The folder for temporary files of a driver and its browsers, private to the user."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...processes.workdir import private_folder

PREFIX: Final = "statehold-driver-"
MAX_PATH_BYTES: Final = 58
"""The longest path in bytes. A full browser makes a socket whose path is some 45 bytes longer; the limit is 104 bytes on
macOS and 108 on Linux."""


class ScratchFolder:
    """A temporary folder; it exists from make() to remove(). make() also removes folders left behind by killed processes.

    A lock marks a folder in use; the kernel drops the lock when the process ends. Both calls block.
    """

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path = path
        self._handle: int | None = handle

    @classmethod
    def make(cls, parent: Path) -> ScratchFolder:
        """Make a folder below `parent`, or below the system's temporary folder if the path would be too long.

        Raises:
            OSError: The folder cannot be made.
        """
        folder = next(filter(_fits, (parent, Path(tempfile.gettempdir()))), Path("/tmp"))
        private_folder(parent)
        for each in {parent, folder}:
            _sweep(each)
        while True:
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
            handle = _lock(path)
            # Another process may have swept the folder before it was locked.
            if handle is not None and path.is_dir():
                return cls(path, handle)
            if handle is not None:
                os.close(handle)

    @classmethod
    def reopen(cls, path: Path) -> ScratchFolder:
        """Return the folder of a program that runs. A folder that is gone has nothing to remove."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            handle = None
        return cls(path, handle)

    def share(self) -> None:
        """Share the lock with a program that holds it, too."""
        assert self._handle is not None
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def remove(self) -> None:
        """Remove the folder with its contents. May be called twice."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(handle)


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / f"{PREFIX}{'x' * 8}")) <= MAX_PATH_BYTES


def _sweep(folder: Path) -> None:
    for path in _own_folders(folder):
        handle = _lock(path)
        if handle is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def _own_folders(folder: Path) -> Iterator[Path]:
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if path.lstat().st_uid == os.geteuid() and path.is_dir() and not path.is_symlink():
                yield path


def _lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a folder; None if another process holds it or the folder is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
