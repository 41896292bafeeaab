"""The lock files of the nodes of a data folder.

A node holds an exclusive lock on a file of its own for as long as its process lives. The kernel drops the lock when the
process ends, however it ends, and not before: a stopped process keeps it. A process that can lock a node's file has proof
that the node is dead.
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio

from .errors import StoreUnavailable
from .records import NodeRecord

NODES: Final = "nodes"
"""The folder of the lock files, in the data folder."""


class LockFolder:
    """The folder with one lock file per node. Keeps this process's own file open, and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def _file(self, node: str) -> Path:
        return self._path / f"{node}.lock"

    def proof_key(self) -> str:
        """Name this boot of the machine and this folder. Processes with the same key see the same locks."""
        stat = self._path.stat()
        return f"{_boot_id()}:{stat.st_dev}:{stat.st_ino}"

    async def hold(self, node: str) -> None:
        """Create the file of a node and lock it until `drop`, or until the process ends.

        Raises:
            StoreUnavailable: when the folder cannot be written, or its file system has no locks.
        """
        try:
            # mkdir applies the mode to the last folder only, and the one above is ours too.
            for path in (self._path.parent, self._path):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            while not self._try_hold(node):  # noqa: ASYNC110 - a sweeper sets no event
                await anyio.sleep(0.002)
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise StoreUnavailable(
                f"{NODES} in the data folder cannot be used: {reason}. "
                "Choose a data folder on a local disk that you can write to."
            ) from error

    def _try_hold(self, node: str) -> bool:
        path = self._file(node)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # A sweeper may have locked and removed the file between the two calls; the lock would be on a deleted file.
        if _try_flock(handle, fcntl.LOCK_EX) and _same_file(handle, path):
            self._handle = handle
            return True
        os.close(handle)
        return False

    def drop(self, node: str, *, remove: bool) -> None:
        """Give up the lock; with `remove`, remove the file too, which is then no longer needed as proof."""
        if remove:
            self._file(node).unlink(missing_ok=True)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @contextmanager
    def proof(self, record: NodeRecord, own_key: str) -> Generator[bool]:
        """Yield whether a node is proved dead. During the block no process can start under its file.

        A node without a file is dead if its process is gone, or if it ran under another boot or folder: no such process
        can use this database now.
        """
        try:
            handle = os.open(self._file(record.id), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield record.proof_key != own_key or not _is_running(record.pid)
            return
        try:
            # Shared, so that several processes can find the same proof at once.
            yield _try_flock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    def sweep(self, node_ids: Iterable[str]) -> None:
        """Remove the files of processes that are gone and that no row names."""
        keep = {self._file(node) for node in node_ids}
        for path in self._path.glob("*.lock"):
            if path not in keep:
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if _try_flock(handle, fcntl.LOCK_SH) and _same_file(handle, path):
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _try_flock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()  # no worse: another boot of this machine leaves no lock behind
