"""The kept connections of a store: one writer and two readers."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from sqlalchemy import Connection

from ..errors import StoreUnavailable
from .connection import DatabaseDriver, FileDriver, KeptConnection, ServerDriver
from .dialect import (
    FILE_NAME,
    WRITES,
    RemoteDatabase,
    check_storage,
    is_damage,
    make_engine,
    sync,
    use_wal,
)
from .file.store_folder import DatabaseDamaged, DataFolder
from .schema import HEAD
from .sealing.keyring import SEALING, Keyring
from .upgrade import complete_revision, revision, upgrade

T = TypeVar("T")

logger = logging.getLogger(__name__)

READERS = 2
CHECK_LIMIT = 1 << 25
"""Bytes of the largest database that is checked as a whole before it is used: a millisecond for a megabyte."""


Location = DataFolder | RemoteDatabase | None
"""Location of a database; None is memory."""


class Connections:
    """The connections to one database. An in-memory database has one, which reads and writes in turn.

    With `replace_damaged`, open() and replace_if_damaged() rename a file in the data folder that cannot be read, and
    create an empty one.
    """

    def __init__(
        self,
        location: Location,
        busy_seconds: float,
        keyring: Keyring,
        *,
        replace_damaged: bool = False,
    ) -> None:
        self._location = location
        self._replaces_damaged = replace_damaged
        self._busy_seconds = busy_seconds
        memory = location is None
        folder = location if isinstance(location, DataFolder) else None
        writer, readers = _drivers(location, busy_seconds, keyring)
        self._writer = KeptConnection(writer, forever=memory, folder=folder)
        self._readers = [KeptConnection(reader, folder=folder) for reader in readers]
        self._all = [self._writer, *self._readers]
        self._reading = anyio.Semaphore(READERS)
        self.unsynced = False
        """Whether some transactions are not on the disk yet, or the last one failed: a flush shows whether the next one
        can be written."""

    @property
    def location(self) -> str:
        location = self._location
        if isinstance(location, RemoteDatabase):
            return location.location
        return "memory" if location is None else str(location.file)

    async def open(self, tasks: TaskGroup) -> None:
        """Connect, and create or upgrade the database, one process at a time. The connections run in `tasks` until aclose().

        Raises:
            StoreUnavailable: when that is not possible. Then the database is unchanged.
        """
        for connection in self._all:
            connection.start(tasks)
        location = self._location
        if location is None:
            await self._writer.run(lambda connection: upgrade(connection, None))
        elif isinstance(location, RemoteDatabase):
            if await self._readers[0].run(revision) != HEAD:
                await self._writer.run(partial(_upgrade, location))
        else:
            async with self._hold_lock(location):
                await self._open_file(location)
            for reader in self._readers:
                # Open their files now: later there may be no descriptor left.
                await reader.run(revision)

    async def replace_if_damaged(self, error: Exception) -> bool:
        """If damage caused an error, begin an empty database. Return whether that was done.

        Call it only before serving begins, while nothing else runs on the connections.

        Raises:
            StoreUnavailable: when the empty database cannot be begun.
        """
        location = self._location
        if not (self._replaces_damaged and isinstance(location, DataFolder)):
            return False
        if location.is_same() and not await self._is_damage(error):
            return False
        async with self._hold_lock(location):
            for connection in self._all:
                await connection.reset()
            # Another process may have begun an empty one already.
            if location.is_same():
                _set_aside(location)
            await self._open_file(location)
        return True

    async def _is_damage(self, error: Exception) -> bool:
        if _means_damage(error):
            return True
        try:
            return bool(await self.read(check_storage))
        except StoreUnavailable as check_error:
            return _means_damage(check_error)

    def _hold_lock(self, folder: DataFolder) -> AbstractAsyncContextManager[None]:
        return folder.hold_lock(self._busy_seconds + 25.0)

    async def _open_file(self, folder: DataFolder) -> None:
        try:
            await self._open_or_create(folder)
        except StoreUnavailable as error:
            if not (self._replaces_damaged and _means_damage(error)):
                raise
            for connection in self._all:
                await connection.reset()
            _set_aside(folder)
            await self._open_or_create(folder)
        folder.remember()

    async def _open_or_create(self, folder: DataFolder) -> None:
        folder.check_log()
        folder.make_file()
        checks = self._replaces_damaged and folder.size() <= CHECK_LIMIT
        revision_found = await self._readers[0].run(partial(_prepare_file, checks=checks))
        await self._writer.run(lambda connection: upgrade(connection, revision_found))

    async def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run one transaction that holds the write lock from its beginning.

        With `durable`, this transaction and those before it are on the disk on return. Otherwise it survives the end of
        the process, but a power cut only where the database flushes each transaction anyway.

        Raises:
            StoreUnavailable: when the database failed. Other errors of the work are raised as they are.
        """
        folder = self._location if isinstance(self._location, DataFolder) else None

        def check_and_work(connection: Connection) -> T:
            if folder is not None:
                folder.check()
                if self.unsynced:
                    sync(connection)  # a transaction that changes nothing flushes nothing
            return work(connection)

        try:
            # Background writes are checked only when they must be durable.
            unit = check_and_work if durable else work
            value = await self._writer.run(unit, durable=durable or folder is None)
        except StoreUnavailable:
            self.unsynced = True
            raise
        self.unsynced = folder is not None and not durable
        return value

    @property
    def trouble(self) -> str | None:
        """Why no write can succeed although none failed yet: the disk is full. None otherwise."""
        return self._location.trouble() if isinstance(self._location, DataFolder) else None

    def free_bytes(self) -> int | None:
        """Return the free bytes on the disk of the data folder, None without a folder or when they are unknown."""
        if not isinstance(self._location, DataFolder):
            return None
        try:
            return shutil.disk_usage(self._location.path).free
        except OSError:
            return None

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run single statements, each of which sees everything that was committed before it.

        Raises:
            StoreUnavailable: when the database failed.
        """
        if not self._readers:
            return await self._writer.run(work)
        async with self._reading:
            reader = self._readers.pop()
            try:
                return await reader.run(work)
            finally:
                self._readers.append(reader)

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        with anyio.CancelScope(shield=True):
            for connection in self._all:
                await connection.aclose()


def _drivers(
    location: Location, busy_seconds: float, keyring: Keyring
) -> tuple[DatabaseDriver, list[DatabaseDriver]]:
    """Return a closed connection that writes, and those that only read."""
    options = {SEALING: keyring}
    if isinstance(location, RemoteDatabase):
        remote = location.engine(busy_seconds)
        autocommit = {**options, "isolation_level": "AUTOCOMMIT"}
        remote_reads = location.engine(busy_seconds, reads=True)
        readers = [ServerDriver(remote_reads, autocommit) for _ in range(READERS)]
        return ServerDriver(remote, options), [*readers]
    engine = make_engine(location.file if location else None, busy_seconds)
    file_readers = [FileDriver(engine, options) for _ in range(READERS if location else 0)]
    return FileDriver(engine, {**options, WRITES: True}), [*file_readers]


def _means_damage(error: Exception) -> bool:
    return isinstance(error, DatabaseDamaged) or is_damage(error.__cause__)


def _set_aside(folder: DataFolder) -> None:
    name = folder.set_aside(time.time())
    logger.error(
        "%s is damaged: it was set aside as %s, and an empty one begins. Its sessions are not lost: stop Statehold and "
        "put a copy in its place, or recover what can be read with `sqlite3 %s .dump`.",
        FILE_NAME,
        name,
        name,
    )


def _prepare_file(connection: Connection, *, checks: bool) -> str | None:
    revision_found = complete_revision(connection)
    if checks and check_storage(connection):
        raise DatabaseDamaged("it does not pass SQLite's own check")
    use_wal(connection)
    return revision_found


def _upgrade(database: RemoteDatabase, connection: Connection) -> None:
    with database.upgrading(connection):
        # Another process may have upgraded it already.
        upgrade(connection, revision(connection))
