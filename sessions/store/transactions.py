"""Reads of kept connections, and writes that the group-commit writer puts into transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from ..errors import StoreUnavailable
from .batch import WriteFunction, not_storable
from .creation import NewSession
from .database import Connections
from .people.audit_queries import AuditAppend
from .rows import Change
from .writer import Writer

T = TypeVar("T")


class Transactions:
    """The reads and writes of an open store. While it is not open, they raise StoreUnavailable."""

    def __init__(self, connections: Connections, writer: Writer) -> None:
        self._connections = connections
        self._writer = writer
        self.is_open = False

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Return the result of a query.

        Raises:
            StoreUnavailable: the database cannot be reached.
            InvalidArgument: a value cannot be stored.
        """
        self._check_open()
        try:
            return await self._connections.read(query)
        except (DBAPIError, UnicodeError, OverflowError):
            # The cause is dropped: some drivers quote values in their messages.
            raise not_storable() from None

    async def submit(self, work: Change | NewSession | AuditAppend | WriteFunction) -> object:
        """Write, and return the result of the write when it is durable."""
        self._check_open()
        return await self._writer.submit(work)

    def _check_open(self) -> None:
        if not self.is_open:
            raise StoreUnavailable("The store is closed.")
