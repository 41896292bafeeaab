"""The kept connections of a store: one writer and two readers, each in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import anyio
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from ..errors import StoreUnavailable
from .dialect import (
    FILE_NAME,
    WRITES,
    RemoteDatabase,
    blames_database,
    blames_disk,
    check_storage,
    conflicted,
    damaged,
    explain,
    interrupt,
    lost,
    make_engine,
    set_durable,
    sync,
    transaction,
    usable,
    use_wal,
)
from .folder import Damaged, DataFolder
from .schema import HEAD
from .thread import Worker
from .upgrade import revision, upgrade, whole

T = TypeVar("T")

logger = logging.getLogger(__name__)

READERS = 2
PATIENCE = 10.0
"""Seconds that closing waits for running work."""
ATTEMPTS = 12
"""Most runs of a transaction that conflicts with others."""
LONGEST_PAUSE = 0.1
"""Bound of the pause between two of these runs, in seconds."""
CHECKED = 1 << 25
"""Bytes of the largest database that is checked as a whole before it is used: a millisecond for a megabyte."""


class KeptConnection:
    """One connection, kept because a checkout costs more than a statement, and the thread that alone uses it.

    A transaction takes one hop to the thread, however many statements it has. Cancelling a caller does not end its
    transaction; the next one waits for it. A connection that failed is closed, and replaced at its next use, unless it
    holds the database (`forever`) or can go on: it may be impossible just then to open its files again. Work is run again
    when the database undid it because of a conflict, or had closed the connection before; so it must be repeatable.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        writes: bool,
        forever: bool = False,
        folder: DataFolder | None = None,
    ) -> None:
        self._engine = engine
        self._folder = folder
        self._forever = forever
        self._options: dict[str, Any] = {WRITES: writes}
        if not writes and engine.dialect.name != "sqlite":
            self._options["isolation_level"] = "AUTOCOMMIT"
        self._connection: Connection | None = None
        self._durable = self._wanted = True
        self._worker = Worker("statehold-store")
        self._closed = False

    async def run(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run work, in one transaction if the connection writes.

        Raises:
            StoreUnavailable: when the database failed. Other errors of the work are raised as they are.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        return await self._worker.run(partial(self._run, work, durable))

    def _run(self, work: Callable[[Connection], T], durable: bool) -> T:
        self._wanted = durable
        with _explained(self._folder):
            for attempt in range(1, ATTEMPTS):
                fresh = self._connection is None
                try:
                    return self._attempt(work)
                except _Undone as undone:
                    # A connection that was just opened cannot have been lost by being idle.
                    if undone.lost and (fresh or attempt > 1 or self._closed):
                        raise undone.cause from None
                # A random pause, so that conflicting transactions do not meet again.
                time.sleep(random.uniform(0.5, 1.5) * min(0.001 * 2**attempt, LONGEST_PAUSE))
            try:
                return self._attempt(work)
            except _Undone as undone:
                raise undone.cause from None

    def _attempt(self, work: Callable[[Connection], T]) -> T:
        """Run work once, in a transaction.

        Raises:
            _Undone: when the transaction left no trace, and the work may be run again.
        """
        if self._connection is None:
            self._connection = self._engine.connect().execution_options(**self._options)
            self._durable = True
        connection = self._connection
        if self._durable is not self._wanted:
            set_durable(connection, self._wanted)
            self._durable = self._wanted
        done = False
        try:
            with transaction(connection):
                value = work(connection)
                done = True
            return value
        except Exception as error:
            if not blames_database(error):
                raise
            conflict = conflicted(error)
            if lost(error):
                connection.invalidate()  # there is no server to close it with
            if not (self._forever or conflict or usable(error)):
                self._discard()
            if conflict or (lost(error) and not done):
                raise _Undone(error, lost=not conflict) from None
            raise

    def _discard(self) -> None:
        found, self._connection = self._connection, None
        if found is not None:
            with suppress(SQLAlchemyError, sqlite3.Error, OSError):
                found.close()

    async def reset(self) -> None:
        """Close the connection after the running work. The next work opens another one."""
        await self._worker.run(self._discard)

    async def aclose(self) -> None:
        """Close after the running work; interrupt it if it takes longer than PATIENCE. Idempotent."""
        if self._closed:
            return
        self._closed = True
        ended = self._worker.run(self._discard)
        _, late = await asyncio.wait({ended}, timeout=PATIENCE)
        if late and self._connection is not None:
            # A server that does not answer must not keep this process from ending.
            with suppress(SQLAlchemyError, OSError, AttributeError):
                interrupt(self._connection.connection.driver_connection)
            await asyncio.wait({ended}, timeout=PATIENCE)
        self._worker.end()


class _Undone(Exception):
    """Raised when a transaction left no trace."""

    def __init__(self, cause: Exception, *, lost: bool) -> None:
        super().__init__()
        self.cause = cause
        self.lost = lost


Place = DataFolder | RemoteDatabase | None
"""Location of a database; None is memory."""


class Connections:
    """The connections to one database. An in-memory database has one, which reads and writes in turn.

    With `mends`, a file in the data folder that cannot be read is set aside when it is opened, or by mend().
    """

    def __init__(self, place: Place, busy_seconds: float, *, mends: bool = False) -> None:
        self._place = place
        self._mends = mends
        self._busy_seconds = busy_seconds
        self._engine = (
            place.engine(busy_seconds)
            if isinstance(place, RemoteDatabase)
            else make_engine(place.file if place else None, busy_seconds)
        )
        memory = place is None
        folder = place if isinstance(place, DataFolder) else None
        self._writer = KeptConnection(self._engine, writes=True, forever=memory, folder=folder)
        self._readers = [
            KeptConnection(self._engine, writes=False, folder=folder)
            for _ in range(0 if memory else READERS)
        ]
        self._all = [self._writer, *self._readers]
        self._reading = anyio.Semaphore(READERS)
        self.behind = False
        """Whether some transactions are not on the disk yet, or the last one failed: a flush shows whether the next one
        can be written."""

    @property
    def place(self) -> str:
        place = self._place
        if isinstance(place, RemoteDatabase):
            return place.place
        return "memory" if place is None else str(place.file)

    async def open(self) -> None:
        """Connect, and create or upgrade the database, one process at a time.

        Raises:
            StoreUnavailable: when that is not possible. Then the database is unchanged.
        """
        place = self._place
        if place is None:
            await self._writer.run(lambda connection: upgrade(connection, None))
        elif isinstance(place, RemoteDatabase):
            if await self._readers[0].run(revision) != HEAD:
                await self._writer.run(partial(_upgrade, place))
        else:
            async with self._locked(place):
                await self._open_file(place)
            for reader in self._readers:
                # Open their files now: later there may be no descriptor left.
                await reader.run(revision)

    async def mend(self, error: Exception) -> bool:
        """If damage caused an error, begin an empty database. Return whether that was done.

        Call it only before serving begins, while nothing else runs on the connections.

        Raises:
            StoreUnavailable: when the empty database cannot be begun.
        """
        place = self._place
        if not (self._mends and isinstance(place, DataFolder)):
            return False
        if place.is_same() and not await self._is_damage(error):
            return False
        async with self._locked(place):
            for connection in self._all:
                await connection.reset()
            # Another process may have begun an empty one already.
            if place.is_same():
                _set_aside(place)
            await self._open_file(place)
        return True

    async def _is_damage(self, error: Exception) -> bool:
        if _means_damage(error):
            return True
        try:
            return bool(await self.read(check_storage))
        except StoreUnavailable as found:
            return _means_damage(found)

    def _locked(self, folder: DataFolder) -> AbstractAsyncContextManager[None]:
        return folder.locked(self._busy_seconds + 25.0)

    async def _open_file(self, folder: DataFolder) -> None:
        try:
            await self._begin(folder)
        except StoreUnavailable as error:
            if not (self._mends and _means_damage(error)):
                raise
            for connection in self._all:
                await connection.reset()
            _set_aside(folder)
            await self._begin(folder)
        folder.remember()

    async def _begin(self, folder: DataFolder) -> None:
        folder.check_log()
        folder.make_file()
        checks = self._mends and folder.size() <= CHECKED
        found = await self._readers[0].run(partial(_look, checks=checks))
        await self._writer.run(lambda connection: upgrade(connection, found))

    async def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run one transaction that holds the write lock from its beginning.

        With `durable`, this transaction and those before it are on the disk on return. Otherwise it survives the end of
        the process, but a power cut only where the database flushes each transaction anyway.

        Raises:
            StoreUnavailable: when the database failed. Other errors of the work are raised as they are.
        """
        place = self._place

        def checked(connection: Connection) -> T:
            # Background writes are checked only when they must be durable.
            if durable and isinstance(place, DataFolder):
                place.check()
                if self.behind:
                    sync(connection)  # a transaction that changes nothing flushes nothing
            return work(connection)

        local = isinstance(place, DataFolder)
        try:
            value = await self._writer.run(checked, durable=durable or not local)
        except StoreUnavailable:
            self.behind = True
            raise
        self.behind = local and not durable
        return value

    @property
    def trouble(self) -> str | None:
        """Why no write can succeed although none failed yet: the disk is full. None otherwise."""
        return self._place.trouble() if isinstance(self._place, DataFolder) else None

    def free_bytes(self) -> int | None:
        """Return the free bytes on the disk of the data folder, None without a folder or when they are unknown."""
        if not isinstance(self._place, DataFolder):
            return None
        try:
            return shutil.disk_usage(self._place.path).free
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
        self._engine.dispose()


def _means_damage(error: Exception) -> bool:
    return isinstance(error, Damaged) or damaged(error.__cause__)


def _set_aside(folder: DataFolder) -> None:
    name = folder.set_aside(time.time())
    logger.error(
        "%s is damaged: it was set aside as %s, and an empty one begins. Its sessions are not lost: stop Statehold and "
        "put a copy in its place, or recover what can be read with `sqlite3 %s .dump`.",
        *(FILE_NAME, name, name),
    )


def _look(connection: Connection, *, checks: bool) -> str | None:
    found = whole(connection)
    if checks and check_storage(connection):
        raise Damaged("it does not pass SQLite's own check")
    use_wal(connection)
    return found


def _upgrade(database: RemoteDatabase, connection: Connection) -> None:
    with database.upgrading(connection):
        # Another process may have upgraded it already.
        upgrade(connection, revision(connection))


@contextmanager
def _explained(folder: DataFolder | None) -> Generator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        if not blames_database(error):
            raise
        found = folder.probe() if folder is not None and blames_disk(error) else None
        raise StoreUnavailable(explain(error, found)) from error
