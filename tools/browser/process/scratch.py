"""Where a driver and its browsers put what is of no use after them: a folder of their own, private to the user."""

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
LONGEST: Final = 58
"""Bytes of its path: a whole browser makes a socket some 45 deeper, which may be 104 long on macOS and 108 on Linux."""


class ScratchFolder:
    """A folder from make() to remove(). What a process that was killed left behind is removed by the next make().

    Its lock tells that somebody uses it; the kernel drops that with the process. Both calls block.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle: int | None = handle

    @classmethod
    def make(cls, parent: Path) -> ScratchFolder:
        """Make one below `parent`, or below the system's temporary folder when the path would be too long.

        Raises:
            OSError: it cannot be made.
        """
        folder = next(filter(_fits, (parent, Path(tempfile.gettempdir()))), Path("/tmp"))
        private_folder(parent)
        for each in {parent, folder}:
            _sweep(each)
        while True:
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
            handle = _locked(path)
            # Somebody may have swept it between the two.
            if handle is not None and path.is_dir():
                return cls(path, handle)
            if handle is not None:
                os.close(handle)

    def remove(self) -> None:
        """Remove it with all that is in it. May be called twice."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(handle)


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / f"{PREFIX}{'x' * 8}")) <= LONGEST


def _sweep(folder: Path) -> None:
    for path in _mine(folder):
        handle = _locked(path)
        if handle is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def _mine(folder: Path) -> Iterator[Path]:
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if path.lstat().st_uid == os.geteuid() and path.is_dir() and not path.is_symlink():
                yield path


def _locked(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a folder, None when somebody else has it or the folder is gone."""
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


__all__ = ["LONGEST", "ScratchFolder"]
