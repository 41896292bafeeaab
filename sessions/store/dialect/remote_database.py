"""A database on a server, named by a URL."""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from ...errors import StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_DRIVERS: Final = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+asyncmy",
    "mariadb": "mysql+asyncmy",
}
"""The driver used, by the kind of database in a URL. SQLAlchemy's URLs name one after a plus sign, which is ignored."""
_EXTRAS: Final = {"postgresql": "postgres", "mysql": "mysql"}


class RemoteDatabase:
    """The address and the credentials of a database. Its representation and its errors hold no password."""

    def __init__(self, url: str) -> None:
        """
        Raises:
            ValueError: when the URL names no database that can be used. The message holds no secret.
        """
        self._url = _parse_url(url)
        self.kind = self._url.get_backend_name()
        self._engines: dict[tuple[float, bool], AsyncEngine] = {}

    def __repr__(self) -> str:
        return f"RemoteDatabase({self.location})"

    @property
    def location(self) -> str:
        """The database in words for its owner: kind, host and name, no credentials."""
        host = self._url.host or "local"
        port = f":{self._url.port}" if self._url.port else ""
        return f"{self.kind} {host}{port}/{self._url.database}"

    def engine(self, busy_seconds: float, *, reads: bool = False) -> AsyncEngine:
        """Return an engine, the same one every time: it holds no connection, but remembers compiled statements.

        `reads` is for connections that only read.

        Raises:
            StoreUnavailable: when its driver is not installed.
        """
        key = (busy_seconds, reads)
        if key not in self._engines:
            self._engines[key] = self._create_engine(busy_seconds, reads=reads)
        return self._engines[key]

    def _create_engine(self, busy_seconds: float, *, reads: bool) -> AsyncEngine:
        # It loads the ORM, which takes longer than everything else that a store in a data folder needs.
        from sqlalchemy.ext.asyncio import create_async_engine

        dialect_module = self._dialect_module()
        try:
            options: dict[str, Any] = dialect_module.options(self._url, busy_seconds, reads=reads)
            return create_async_engine(
                self._url,
                poolclass=NullPool,
                isolation_level="READ COMMITTED",
                hide_parameters=True,  # errors are logged, and values are secret
                **options,
            )
        except ImportError:
            raise self._without_driver() from None

    def _dialect_module(self) -> Any:
        return import_module(f".{self.kind}", __package__)

    def _without_driver(self) -> StoreUnavailable:
        extra = _EXTRAS[self.kind]
        return StoreUnavailable(
            f"The driver of {self.kind} is not installed. Install Statehold with its extra: statehold[{extra}]."
        )

    def upgrading(self, connection: Connection) -> AbstractContextManager[None]:
        """Keep every other process from creating or upgrading the database, until the changes of the block are visible.

        Raises:
            StoreUnavailable: when another process takes too long.
        """
        lock: AbstractContextManager[None] = self._dialect_module().upgrading(connection)
        return lock


def interrupt(driver: Any) -> None:
    """Shut down a driver's connection to a server, so that the task that waits for it gets an error."""
    number: int = (
        driver.pgconn.socket
        if hasattr(driver, "pgconn")
        else driver._transport.get_extra_info("socket").fileno()
    )
    with socket.socket(fileno=os.dup(number)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _parse_url(url: str) -> URL:
    scheme = url.partition("://")[0] if "://" in url else ""
    driver = _DRIVERS.get(scheme.lower().partition("+")[0])
    if driver is None:
        examples = "postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
        # A text without a scheme may be anything, a password too.
        kind = f"{scheme[:40]!r}" if scheme.isidentifier() else "this"
        raise ValueError(f"there is no store for {kind}; give {examples}")
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or not parsed.database:
        raise ValueError(f"it names no database; give {scheme}://USER@HOST/DATABASE")
    if "ssl_verify_identity" in parsed.query:
        if "ssl_ca" not in parsed.query:
            raise ValueError("ssl_verify_identity needs ssl_ca")
        parsed = parsed.difference_update_query(
            ["ssl_verify_identity"]
        )  # with ssl_ca, the driver does that
    return parsed.set(drivername=driver)
