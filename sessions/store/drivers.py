"""One connection to a database and what runs work on it: aiosqlite's thread, or the event loop with an asyncio driver."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import aiosqlite
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from .dialect import interrupt

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

    def run(self, work: Callable[[Connection], T]) -> T:
        assert self.connection is not None
        return work(self.connection)

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
        result: T = await self._thread._execute(self._handle.run, work)
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
