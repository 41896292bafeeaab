"""A kept connection to a database: what runs work on it, the task that owns it, and transactions that run again."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import aiosqlite
import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from ..errors import StoreUnavailable
from .dialect import (
    explain,
    interrupt,
    is_conflict,
    is_connection_lost,
    is_connection_usable,
    is_database_fault,
    is_disk_fault,
    set_durable,
    transaction,
)
from .file.store_folder import DataFolder

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")

# Its debug lines hold what is written.
logging.getLogger("aiosqlite").setLevel(logging.INFO)


class DatabaseDriver(Protocol):
    """A connection that can be opened and closed again. One task uses it; only interrupt() may be called by another."""

    @property
    def is_open(self) -> bool: ...

    async def open(self) -> None:
        """Connect. Raises what the database's own driver raises."""
        ...

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Call work with the open connection, and return its result."""
        ...

    async def close(self) -> None:
        """Close the connection, whatever its state. Idempotent."""
        ...

    def interrupt(self) -> None:
        """Fail the work that runs, if that is possible."""
        ...


class _Handle:
    """SQLAlchemy's connection, once it is open. aiosqlite holds it, and closes it in its thread."""

    def __init__(self) -> None:
        self.connection: Connection | None = None

    def connect(self, engine: Engine, options: Mapping[str, Any]) -> None:
        self.connection = engine.connect().execution_options(**options)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


class FileDriver:
    """A connection to SQLite, in the thread that aiosqlite starts for it and ends with it.

    Work runs as a whole in that thread. A transaction takes one hop to it, which is half the time that one hop for each
    statement takes.
    """

    def __init__(self, engine: Engine, options: Mapping[str, Any]) -> None:
        self._engine = engine
        self._options = options
        self._handle = _Handle()
        self._thread: Any = None
        """An aiosqlite.Connection. Its public methods run one statement each; _execute() runs any function."""

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    async def open(self) -> None:
        self._handle = _Handle()
        # Connecting comes after it: an error there would leave its thread to itself.
        thread: Any = aiosqlite.Connection(lambda: cast("sqlite3.Connection", self._handle), 1)
        thread._thread.daemon = True  # as SQLAlchemy's dialect for aiosqlite does
        await thread
        try:
            await thread._execute(self._handle.connect, self._engine, self._options)
        except BaseException:
            await thread.close()
            raise
        self._thread = thread

    async def run(self, work: Callable[[Connection], T]) -> T:
        result: T = await self._thread._execute(work, self._handle.connection)
        return result

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            with suppress(SQLAlchemyError, sqlite3.Error, OSError):
                await thread.close()

    def interrupt(self) -> None:
        """Do nothing: SQLite waits for no server, and for a lock no longer than `busy_seconds`."""


class ServerDriver:
    """A connection to a database server, through SQLAlchemy's asyncio extension."""

    def __init__(self, engine: AsyncEngine, options: Mapping[str, Any]) -> None:
        self._engine = engine
        self._options = options
        self._connection: AsyncConnection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        connection = await self._engine.connect()
        self._connection = await connection.execution_options(**self._options)

    async def run(self, work: Callable[[Connection], T]) -> T:
        assert self._connection is not None
        return await self._connection.run_sync(work)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError, OSError):
                await connection.close()

    def interrupt(self) -> None:
        if self._connection is not None and (connection := self._connection.sync_connection):
            with suppress(SQLAlchemyError, OSError, AttributeError):
                interrupt(connection.connection.driver_connection)


CLOSE_SECONDS = 10.0
"""Seconds that closing waits for running work, and again after it was interrupted."""
MAX_ATTEMPTS = 12
"""Most runs of a transaction that conflicts with others."""
LONGEST_PAUSE = 0.1
"""Bound of the pause between two of these runs, in seconds."""


@dataclass(slots=True, eq=False)
class _Job:
    work: Callable[[Connection], Any] | None
    """None closes the connection."""
    durable: bool
    future: asyncio.Future[Any]
    work_returned: bool = False
    """Whether the work returned, so that an error may have come after the commit."""


class KeptConnection:
    """One connection, kept because opening one costs more than a statement. It lives from start() to aclose().

    The task that start() starts alone uses the connection. Cancelling a caller does not reach its transaction; the next one
    waits for it. A connection that failed is closed, and opened again at its next use, unless it holds the database
    (`forever`) or can go on: it may be impossible just then to open its files again. Work is run again when the database
    undid it because of a conflict, or had closed the connection before; so it must be repeatable.
    """

    def __init__(
        self, driver: DatabaseDriver, *, forever: bool = False, folder: DataFolder | None = None
    ) -> None:
        self._driver = driver
        self.openings = 0
        """Number of times that the connection was opened."""
        self._forever = forever
        self._folder = folder
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()
        self._durable = True
        self._scope: anyio.CancelScope | None = None
        self._serve_ended = anyio.Event()
        self._is_closed = True

    async def run(self, work: Callable[[Connection], T] | None, *, durable: bool = True) -> T:
        """Run work, in one transaction if the connection writes.

        Raises:
            StoreUnavailable: when the database failed. Other errors of the work are raised as they are.
        """
        if self._is_closed:
            raise StoreUnavailable("The store is closed.")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_Job(work, durable, future))
        return await future

    async def reset(self) -> None:
        """Close the connection after the running work. The next work opens another one."""
        await self.run(None)

    def interrupt(self) -> None:
        """Fail the running work, if the driver can; the next work opens the connection again."""
        self._driver.interrupt()

    def start(self, tasks: TaskGroup) -> None:
        """Start the task that owns the connection. Cancelling its scope does not stop it: aclose() does."""
        self._is_closed = False
        tasks.start_soon(self._serve)

    async def _serve(self) -> None:
        """Run the work of callers, one after the other, until closed."""
        try:
            with anyio.CancelScope(shield=True) as self._scope:
                while (job := await self._jobs.get()) is not None:
                    if not job.future.cancelled():
                        await self._run_job(job)
                    del job  # it may be large, and the next one may come late
                await self._driver.close()
        finally:
            self._is_closed = True
            self._serve_ended.set()

    async def _run_job(self, job: _Job) -> None:
        try:
            value = await (self._driver.close() if job.work is None else self._perform(job))
        except asyncio.CancelledError:
            job.future.cancel()
            raise
        except BaseException as error:
            if not job.future.done():
                job.future.set_exception(error)
        else:
            if not job.future.done():
                job.future.set_result(value)

    async def _perform(self, job: _Job) -> Any:
        try:
            for attempt in range(1, MAX_ATTEMPTS):
                is_fresh = not self._driver.is_open
                try:
                    return await self._attempt(job)
                except (SQLAlchemyError, sqlite3.Error, OSError) as error:
                    # A connection that was just opened cannot have been lost by being idle.
                    was_idle_too_long = is_connection_lost(error) and not (
                        job.work_returned or is_fresh or attempt > 1 or self._is_closed
                    )
                    if not (is_conflict(error) or was_idle_too_long):
                        raise
                # A random pause, so that conflicting transactions do not meet again.
                seconds = random.uniform(0.5, 1.5) * min(0.001 * 2**attempt, LONGEST_PAUSE)
                await asyncio.sleep(seconds)
            return await self._attempt(job)
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            if not is_database_fault(error):
                raise
            raise StoreUnavailable(explain(error, await self._probe(error))) from error

    async def _attempt(self, job: _Job) -> Any:
        """Run a job once, in a transaction. Close the connection after an error that it may not survive."""
        job.work_returned = False
        try:
            if not self._driver.is_open:
                await self._driver.open()
                self.openings += 1
                self._durable = True
            return await self._driver.run(partial(self._transact, job))
        except Exception as error:
            if (
                is_database_fault(error)
                and not (self._forever or is_connection_usable(error))
                and (is_connection_lost(error) or not is_conflict(error))
            ):
                await self._driver.close()
            raise

    def _transact(self, job: _Job, connection: Connection) -> Any:
        if self._durable is not job.durable:
            set_durable(connection, job.durable)
            self._durable = job.durable
        try:
            with transaction(connection):
                assert job.work is not None
                value = job.work(connection)
                job.work_returned = True
                return value
        except Exception as error:
            if is_connection_lost(error):
                connection.invalidate()  # there is no server to close it with
            raise

    async def _probe(self, error: Exception) -> OSError | None:
        """Return the error of the disk behind an error that does not say why the disk refused."""
        if self._folder is None or not is_disk_fault(error):
            return None
        return await anyio.to_thread.run_sync(self._folder.probe)

    async def aclose(self) -> None:
        """Close after the running work; interrupt it if it takes longer than CLOSE_SECONDS. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._jobs.put_nowait(None)
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._serve_ended.wait()
        if not self._serve_ended.is_set():
            # A server that does not answer must not keep this process from ending.
            self._driver.interrupt()
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._serve_ended.wait()
            if self._scope is not None:
                self._scope.cancel()
