"""Reads of kept connections, and writes that the group-commit writer puts into transactions.

A query is a plain function whose first argument is a connection. read_method() and write_method() make a method of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from ..errors import StoreUnavailable
from .batch import not_storable
from .creation import NewSession
from .database import Connections
from .people.audit_queries import AuditAppend
from .rows import Change
from .writer import Writer

P = ParamSpec("P")
T = TypeVar("T")


class Transactions:
    """The reads and writes of an open store. While it is not open, they raise StoreUnavailable."""

    def __init__(self, connections: Connections, writer: Writer) -> None:
        self._connections = connections
        self._writer = writer
        self.is_open = False

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Return the result of a query, whose statements each see everything that was committed before it.

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

    @overload
    async def write(self, work: Change | NewSession | AuditAppend) -> None: ...
    @overload
    async def write(self, work: Callable[[Connection], T]) -> T: ...
    async def write(
        self, work: Change | NewSession | AuditAppend | Callable[[Connection], Any]
    ) -> Any:
        """Write in a transaction that other work may share, and return the result of the work when it is durable."""
        self._check_open()
        return await self._writer.submit(work)

    def _check_open(self) -> None:
        if not self.is_open:
            raise StoreUnavailable("The store is closed.")


class Queries:
    """A base of classes that have queries as methods."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions


def read_method(
    query: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[Queries, P], CoroutineType[Any, Any, T]]:
    """Return a method with the arguments and the result of a query that only reads."""

    @wraps(query)
    def method(self: Queries, *args: P.args, **kwargs: P.kwargs) -> CoroutineType[Any, Any, T]:
        return self.transactions.read(lambda connection: query(connection, *args, **kwargs))

    return method


def write_method(
    query: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[Queries, P], CoroutineType[Any, Any, T]]:
    """Return a method with the arguments and the result of a query that writes; it is durable on return."""

    @wraps(query)
    def method(self: Queries, *args: P.args, **kwargs: P.kwargs) -> CoroutineType[Any, Any, T]:
        return self.transactions.write(lambda connection: query(connection, *args, **kwargs))

    return method
