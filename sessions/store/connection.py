"""A kept connection to a database: the task that owns it, and transactions that run again after a conflict."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from ..errors import StoreUnavailable
from .dialect import (
    explain,
    is_conflict,
    is_connection_lost,
    is_connection_usable,
    is_database_fault,
    is_disk_fault,
    set_durable,
    transaction,
)
from .drivers import DatabaseDriver
from .file.store_folder import DataFolder

T = TypeVar("T")

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

    async def run(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run work, in one transaction if the connection writes.

        Raises:
            StoreUnavailable: when the database failed. Other errors of the work are raised as they are.
        """
        return await self._queue(work, durable)

    async def reset(self) -> None:
        """Close the connection after the running work. The next work opens another one."""
        await self._queue(None)

    async def _queue(self, work: Callable[[Connection], Any] | None, durable: bool = True) -> Any:
        if self._is_closed:
            raise StoreUnavailable("The store is closed.")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_Job(work, durable, future))
        return await future

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
