"""This process as a node among those that share a data folder.

A node holds an exclusive lock on a file of its own for as long as its process lives. The kernel drops the lock when the
process ends, however it ends, and not before: a stopped process keeps it. A process that can lock a node's file has proof
that the node is dead.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import anyio

from .errors import StoreUnavailable
from .records import NodeRecord, NodeState
from .store.base import Store

NODES = "nodes"

LEAVE_SECONDS = 10.0


def _new_id() -> str:
    return f"n_{secrets.token_hex(8)}"


class Node:
    """One process on one data folder. `async with` joins the nodes of the folder, and leaves them at the end.

    A store in memory has no folder: then there are no other nodes and there is no lock.
    Nothing else in the process may close the lock file or fork without exec: the lock belongs to the open file.
    """

    def __init__(
        self,
        store: Store,
        folder: Path | None,
        *,
        address: str,
        clock: Callable[[], float],
        new_id: Callable[[], str] = _new_id,
        lease_seconds: float = 0.0,
        capacity: int = 0,
        version: str = "",
    ) -> None:
        self.bury: Callable[[], Awaitable[object]] | None = None
        """Called on proof that a node is dead, before any process can claim its sessions. It ends the child processes that
        the dead node left running, so that no session is ever open twice."""
        self.is_connected: Callable[[str], bool] = lambda node: False
        """Whether this process has an open connection to another node, which proves that the node lives."""
        self.record = NodeRecord(
            id=new_id(),
            proof_key="",
            address=address,
            started_at=clock(),
            pid=os.getpid(),
            capacity=capacity,
            version=version,
            lease_seconds=lease_seconds,
        )
        """The record of this node. Its proof key is set when the node joins."""
        self._store = store
        self._locks = None if folder is None else LockFolder(folder / NODES)
        self._clock = clock
        self._has_left = False
        self._seen: dict[str, NodeRecord] = {}

    @property
    def id(self) -> str:
        """Id of this node in the store. New at every start."""
        return self.record.id

    def advertise(self, peer: str) -> None:
        """Set the `host:port` at which nodes on other machines reach this one. Call it before the node joins."""
        self.record = self.record.model_copy(update={"peer": peer})

    def may_act(self) -> bool:
        """Whether this node may use the connections of its sessions. Without a lease it always may."""
        return True

    def database_now(self) -> float:
        """Return the time of the database's clock in seconds since 1970, as far as this node knows it."""
        return self._clock()

    def up_nodes(self) -> list[NodeRecord]:
        """Return the other nodes that take on sessions, as they were last seen; none without leases."""
        return [record for record in self._seen.values() if record.state is NodeState.UP]

    async def find(self, node: str) -> NodeRecord | None:
        """Return another node that is not dead, as it was last seen, or from the store if it was not seen yet.

        Raises:
            StoreUnavailable: when the store cannot be read.
        """
        record = self._seen.get(node)
        if record is None:
            self._seen_all(await self._store.nodes())
            record = self._seen.get(node)
        return record

    def _seen_all(self, records: Iterable[NodeRecord]) -> None:
        self._seen = {record.id: record for record in records if record.id != self.id}

    async def __aenter__(self) -> Self:
        """Join the nodes of the data folder.

        Raises:
            StoreUnavailable: when the lock or the store cannot be had.
        """
        if self._locks is not None:
            # The row may only be seen once the lock is held, or the node would look dead.
            await self._locks.hold(self.id)
        try:
            if self._locks is not None:
                proof_key = self._locks.proof_key()
                self.record = self.record.model_copy(update={"proof_key": proof_key})
            await self._store.join(self.record)
        except BaseException:
            await self.leave()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.leave()

    async def find_dead(self) -> list[str]:
        """Declare every node dead whose lock can be taken, and return their ids."""
        if self._locks is None:
            return []
        dead: list[str] = []
        for record in await self._store.nodes():
            if record.id == self.id:
                continue
            if record.lease_seconds and record.proof_key != self.record.proof_key:
                continue
            with self._locks.proof(record, self.record.proof_key) as is_dead:
                if not is_dead:
                    continue
                if self.bury is not None:
                    await self.bury()
                if await self._store.declare_dead(record.id):
                    dead.append(record.id)
        return dead

    async def recover(self) -> list[str]:
        """Pause the sessions that dead nodes left open, and return their ids.

        Also completes a recovery that was interrupted when its process was killed. May run in many processes at once: each
        session is adopted by one of them.
        """
        dead = await self.find_dead()
        adopted = await self._store.adopt(dead, self._clock())
        if self._locks is not None:
            node_ids = {record.id for record in await self._store.nodes()}
            self._locks.sweep(node_ids)
        return adopted

    async def leave(self) -> None:
        """Report that nothing of this node is left running, and drop its lock. Idempotent, bounded, never raises.

        If the store is unavailable, the file stays: its free lock proves to other processes that this node is dead.
        """
        if self._has_left:
            return
        self._has_left = True
        is_recorded = False
        with (
            anyio.CancelScope(shield=True),
            anyio.move_on_after(LEAVE_SECONDS),
            suppress(StoreUnavailable),
        ):
            await self._store.leave(self.id)
            is_recorded = True
        if self._locks is not None:
            self._locks.drop(self.id, remove=is_recorded)


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


__all__ = ["LockFolder", "Node"]
