"""This process as a node: one of the processes that share a data folder, and with a lease also one of several machines.

The lock file of a node proves to the processes of its data folder whether it lives. Nodes on other machines
cannot see the lock: for them a node has a lease in the database; see cluster/.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

import anyio

from .cluster.heartbeat import Heartbeat
from .cluster.placement import choose_node, is_placed_here
from .errors import (
    NodeSuspended,
    NodeUnavailable,
    OwnedByAnotherNode,
    ShuttingDown,
    StoreUnavailable,
)
from .records import NodeRecord, NodeState

if TYPE_CHECKING:
    from .store.sql import SQLStore

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


LEAVE_SECONDS = 10.0


def new_node_id() -> str:
    return f"n_{secrets.token_hex(8)}"


class ConnectedNodes(Protocol):
    """The connections of this process to other nodes."""

    def is_connected(self, node: str) -> bool:
        """Whether there is an open connection to a node, which proves that it lives."""
        ...


class Node:
    """One process on one store. `async with` joins the nodes of the store, and leaves them at the end.

    A store in memory has no folder: then there are no other nodes and there is no lock. With `lease_seconds`, the store is a
    database of PostgreSQL, whose other nodes may be on other machines.

    `bury` is called on proof that a node is dead, before any process can claim its sessions. It ends the child processes
    that the dead node left running, so that no session is ever open twice.

    Nothing else in the process may close the lock file or fork without exec: the lock belongs to the open file.
    """

    def __init__(
        self,
        store: SQLStore,
        folder: Path | None,
        *,
        address: str,
        clock: Callable[[], float],
        node_id: str | None = None,
        bury: Callable[[], Awaitable[object]] | None = None,
        lease_seconds: float = 0.0,
        capacity: int = 0,
        version: str = "",
    ) -> None:
        self.id: Final = node_id or new_node_id()
        """Id of this node in the store. New at every start."""
        self.record = NodeRecord(
            id=self.id,
            proof_key="",
            address=address,
            started_at=clock(),
            pid=os.getpid(),
            capacity=capacity,
            version=version,
            lease_seconds=lease_seconds,
        )
        """The record of this node. Its proof key is set when the node joins."""
        self.heartbeat: Heartbeat | None = None
        """Renews the lease of this node; None without a lease, and before the node joins."""
        self._bury = bury
        self._peers: ConnectedNodes | None = None
        self._store = store
        self._locks = None if folder is None else LockFolder(folder / NODES)
        self._clock = clock
        self._has_left = False
        self._stack = AsyncExitStack()

    @property
    def forwards(self) -> bool:
        """Whether requests for sessions of other nodes are forwarded to them."""
        return self._peers is not None

    def attach(self, peers: ConnectedNodes) -> None:
        """Forward requests for sessions of other nodes from now on. The connections to them find these nodes by this one."""
        self._peers = peers

    def _is_connected(self, node: str) -> bool:
        return self._peers is not None and self._peers.is_connected(node)

    def advertise(self, peer: str) -> None:
        """Set the `host:port` at which nodes on other machines reach this one. Call it before the node joins."""
        self.record = self.record.model_copy(update={"peer": peer})

    async def __aenter__(self) -> Self:
        """Join the nodes of the store. With a lease, it is renewed until the node leaves.

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
            if self.record.lease_seconds:
                await self._start_heartbeat()
        except BaseException:
            await self.leave()
            raise
        return self

    async def _start_heartbeat(self) -> None:
        leases = await self._stack.enter_async_context(self._store.leases())
        heartbeat = Heartbeat(self.id, self.record.lease_seconds, leases, self._clock)
        await heartbeat.start()
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(heartbeat.run)
        self._stack.callback(tasks.cancel_scope.cancel)
        self.heartbeat = heartbeat

    async def __aexit__(self, *exc: object) -> None:
        await self.leave()

    # The lease of this node. Without one, it always may act.

    def may_act(self) -> bool:
        """Whether this node may use the connections of its sessions now."""
        return self.heartbeat is None or self.heartbeat.may_act()

    def require_lease(self) -> None:
        """Raises NodeSuspended when this node may not use the connections of its sessions now."""
        if not self.may_act():
            raise NodeSuspended

    def database_now(self) -> float:
        """Return the time of the database's clock in seconds since 1970, as far as this node knows it."""
        return self._clock() if self.heartbeat is None else self.heartbeat.database_now()

    @property
    def can_give_up(self) -> bool:
        """Whether other nodes take on the sessions that this one gives up."""
        return self.heartbeat is not None

    @property
    def is_draining(self) -> bool:
        """Whether the node takes on no more sessions."""
        return self.heartbeat is not None and self.heartbeat.state is NodeState.DRAINING

    async def drain(self) -> None:
        """Report to the other nodes that this one takes on no more sessions. Does nothing without a lease."""
        if self.heartbeat is not None and not self.is_draining:
            await self.heartbeat.drain()

    def up_nodes(self) -> list[NodeRecord]:
        """Return the other nodes that take on sessions, as they were last seen; none without a lease."""
        others = () if self.heartbeat is None else self.heartbeat.others.values()
        return [record for record in others if record.state is NodeState.UP]

    async def find(self, node: str) -> NodeRecord | None:
        """Return another node that is not dead, as it was last seen, or from the store if it was not seen yet.

        Raises:
            StoreUnavailable: when the store cannot be read.
        """
        if self.heartbeat is not None and (record := self.heartbeat.others.get(node)) is not None:
            return record
        found = (record for record in await self._store.nodes() if record.id == node)
        return next(found, None)

    def require_place(self, session_id: str | None, epoch: int = 0) -> None:
        """Check that this node is to take on a session without an owner; None is one that is yet to be created.

        Raises:
            OwnedByAnotherNode: another node is to.
            NodeUnavailable: this node takes on none, and there is no other one.
        """
        if self.heartbeat is None or (is_placed_here() and not self.is_draining):
            return
        others, capacity = self.up_nodes(), self.record.capacity
        other = choose_node(
            self.heartbeat.count_sessions(), capacity, others, is_draining=self.is_draining
        )
        if other is not None and not is_placed_here():
            # Until its next heartbeat, this node would choose it again.
            more = other.model_copy(update={"sessions": other.sessions + 1})
            self.heartbeat.others[other.id] = more
            raise OwnedByAnotherNode(session_id, other.id, other.address, epoch=epoch, adopt=True)
        if self.is_draining:
            raise ShuttingDown
        if not capacity:
            raise NodeUnavailable("No server that takes on sessions is up.", retry_after=1.0)

    def forget(self, node: str) -> None:
        """Choose another node for no session until its next heartbeat, because it cannot be reached."""
        if self.heartbeat is not None:
            self.heartbeat.others.pop(node, None)

    def lives(self, node: str) -> bool:
        """Whether another node is known to live, without a look at its lock.

        A node of the same data folder lives as long as its lock is held, which only recover() finds out.
        """
        if self.heartbeat is None:
            return self._is_connected(node)
        record = self.heartbeat.others.get(node)
        if record is None:
            return False
        return record.proof_key != self.record.proof_key or self._is_connected(node)

    def is_sweeper(self) -> bool:
        """Whether this node is the one that closes and purges sessions without an owner: the first of those that are up."""
        if self.is_draining:
            return False
        others = [(record.started_at, record.id) for record in self.up_nodes()]
        return min([*others, (self.record.started_at, self.id)])[1] == self.id

    async def find_dead(self, *, declares: bool = True) -> list[str]:
        """Declare every node dead whose lock can be taken, and return their ids. Without `declares`, only return them."""
        if self._locks is None:
            return []
        dead: list[str] = []
        for record in await self._store.nodes():
            if record.id == self.id or not self._can_see_lock(record):
                continue
            if record.lease_seconds and record.proof_key != self.record.proof_key:
                continue
            with self._locks.proof(record, self.record.proof_key) as is_dead:
                if not is_dead:
                    continue
                if self._bury is not None:
                    await self._bury()
                if not declares or await self._store.declare_dead(record.id):
                    dead.append(record.id)
                self.forget(record.id)
        return dead

    def _can_see_lock(self, record: NodeRecord) -> bool:
        """Whether the lock of a node, or that there is none, proves something here."""
        has_leases = self.heartbeat is not None or record.lease_seconds > 0
        return record.proof_key == self.record.proof_key or not has_leases

    async def recover(self, *, inherits: bool = False) -> list[str]:
        """Pause the sessions that dead nodes left open, and return their ids.

        With `inherits`, this node owns those that the dead nodes of its data folder left with connections. Another node
        could not resume these, and would otherwise claim such a session as soon as it is asked for it.

        Also completes a recovery that was interrupted when its process was killed. May run in many processes at once: each
        session is adopted by one of them.
        """
        dead = await self.find_dead(declares=not inherits)
        adopted = await self._store.adopt(dead, self._clock(), self.id if inherits else None)
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
        try:
            # First: a renewal after the end would find the node dead.
            await self._stack.aclose()
        finally:
            with (
                anyio.CancelScope(shield=True),
                anyio.move_on_after(LEAVE_SECONDS),
                suppress(StoreUnavailable),
            ):
                await self._store.leave(self.id)
                is_recorded = True
            if self._locks is not None:
                self._locks.drop(self.id, remove=is_recorded)
