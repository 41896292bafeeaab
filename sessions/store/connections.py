"""The kept connections of a store: one that writes and two that read, each in a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import anyio
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from ..errors import StoreUnavailable
from .dialect import WRITES, blames_database, explain, make_engine, use_wal
from .folder import DataFolder
from .upgrade import revision, upgrade

T = TypeVar("T")

READERS = 2


class KeptConnection:
    """One connection, kept because a checkout costs more than a statement, and the thread that alone uses it.

    What runs on it runs whole: one hop to the thread for a transaction, however many statements it has. Cancelling a
    caller leaves its transaction to end by itself; the next one waits for it. A connection that failed is closed, and
    replaced when it is next wanted, unless the database lives in it (`forever`).
    """

    def __init__(self, engine: Engine, *, writes: bool, forever: bool) -> None:
        self._engine = engine
        self._writes = writes
        self._forever = forever
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(1, "statehold-store")
        self._closed = False

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run work, in one transaction if the connection writes.

        Raises:
            StoreUnavailable: when the database failed. Whatever else the work raised is raised as it is.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _run(self, work: Callable[[Connection], T]) -> T:
        with _explained():
            if self._connection is None:
                self._connection = self._engine.connect().execution_options(
                    **{WRITES: self._writes}
                )
            connection = self._connection
            try:
                with connection.begin():
                    return work(connection)
            except Exception as error:
                if blames_database(error) and not self._forever:
                    self._discard()
                raise

    def _discard(self) -> None:
        found, self._connection = self._connection, None
        if found is not None:
            with suppress(SQLAlchemyError, sqlite3.Error):
                found.close()

    async def aclose(self) -> None:
        """Close after what runs now. Idempotent."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._discard)
        self._thread.shutdown(wait=False)


class Connections:
    """The connections to one database. An in-memory database has one, which reads and writes in turn."""

    def __init__(self, folder: DataFolder | None, busy_seconds: float) -> None:
        self._folder = folder
        self._busy_seconds = busy_seconds
        self._engine = make_engine(folder.file if folder else None, busy_seconds)
        memory = folder is None
        self._writer = KeptConnection(self._engine, writes=True, forever=memory)
        self._readers = [
            KeptConnection(self._engine, writes=False, forever=False)
            for _ in range(0 if memory else READERS)
        ]
        self._all = [self._writer, *self._readers]
        self._reading = anyio.Semaphore(READERS)

    async def open(self) -> None:
        """Connect, and make or upgrade the database under the folder's lock.

        Raises:
            StoreUnavailable: when that is not possible. Then nothing of what was found is changed.
        """
        if self._folder is None:
            await self._writer.run(lambda connection: upgrade(connection, None))
            return
        async with self._folder.locked(self._busy_seconds + 25.0):
            self._folder.make_file()
            found = await self._readers[0].run(_look)
            await self._writer.run(lambda connection: upgrade(connection, found))
            self._folder.remember()

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run one transaction that holds the write lock from its beginning.

        Raises:
            StoreUnavailable: when the database failed. Whatever else the work raised is raised as it is.
        """
        folder = self._folder

        def checked(connection: Connection) -> T:
            if folder is not None:
                folder.check()
            return work(connection)

        return await self._writer.run(checked)

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


def _look(connection: Connection) -> str | None:
    found = revision(connection)
    use_wal(connection)
    return found


@contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        if not blames_database(error):
            raise
        raise StoreUnavailable(explain(error)) from error
