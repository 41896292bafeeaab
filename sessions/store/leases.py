"""The leases of nodes in a PostgreSQL database, over a connection of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Self, TypeVar

import anyio
from sqlalchemy import Connection, select, text, update

from ..cluster.lease import Renewal, SeenNode
from ..errors import StoreUnavailable
from ..records import NodeState
from . import schema
from .connection import KeptConnection, ServerDriver
from .dialect import RemoteDatabase
from .rows import columns_of, node_record

T = TypeVar("T")

BUSY_SECONDS: Final = 1.0
"""Seconds that a statement waits for the lock of a row."""

_NOW: Final = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS float8)"

_RENEW: Final = text(
    f"""
    WITH renewed AS (
      UPDATE node SET beat = beat + 1, lease_ends_at = {_NOW} + :seconds, sessions = :sessions
      WHERE id = :node AND state <> 'dead' RETURNING beat
    )
    SELECT node.*, COALESCE(lease_ends_at, 0) < {_NOW} AS is_expired, {_NOW} AS database_time,
      (SELECT beat FROM renewed) AS renewed_beat
    FROM node WHERE state <> 'dead' ORDER BY started_at, id
    """
)
_LOOK: Final = text(
    f"""
    SELECT node.*, COALESCE(lease_ends_at, 0) < {_NOW} AS is_expired
    FROM node WHERE state <> 'dead' ORDER BY started_at, id
    """
)
_DECLARE_DEAD: Final = text(
    f"""
    UPDATE node SET state = 'dead' WHERE id = :node AND state <> 'dead' AND beat = :beat
    AND lease_seconds > 0 AND COALESCE(lease_ends_at, 0) < {_NOW}
    """
)


class PostgresLeases:
    """The leases of nodes. Open it as an async context manager; leaving it closes the connection.

    Every method gives up after `within` seconds, and raises StoreUnavailable when the database does not answer. No other
    work delays a renewal: the connection is used for nothing else.
    """

    def __init__(self, database: RemoteDatabase) -> None:
        driver = ServerDriver(database.engine(BUSY_SECONDS), {"isolation_level": "AUTOCOMMIT"})
        self._connection = KeptConnection(driver)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.push_async_callback(self._connection.aclose)
        self._connection.start(tasks)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _run(self, work: Callable[[Connection], T], seconds: float) -> T:
        with anyio.move_on_after(seconds):
            return await self._connection.run(work)
        self._connection.interrupt()
        raise StoreUnavailable("The database does not answer.")

    async def renew(
        self, node: str, *, lease_seconds: float, sessions: int, within: float
    ) -> Renewal:
        """Renew the lease of a node, and return all nodes."""
        values = {"node": node, "seconds": lease_seconds, "sessions": sessions}
        openings = self._connection.openings

        def work(connection: Connection) -> list[dict[str, Any]]:
            return [dict(columns_of(row)) for row in connection.execute(_RENEW, values)]

        rows = await self._run(work, within)
        return Renewal(
            beat=rows[0]["renewed_beat"] if rows else None,
            nodes=_seen(rows),
            database_time=rows[0]["database_time"] if rows else 0.0,
            is_reconnected=self._connection.openings != openings,
        )

    async def look(self, *, within: float) -> list[SeenNode]:
        """Return all nodes that are not dead, the first to start first."""

        def work(connection: Connection) -> list[SeenNode]:
            return _seen([dict(columns_of(row)) for row in connection.execute(_LOOK)])

        return await self._run(work, within)

    async def declare_dead(self, node: str, beat: int, *, within: float) -> bool:
        """Mark a node dead if its lease is over and it still has that beat. Return False when it has not, or was dead."""

        def work(connection: Connection) -> bool:
            return connection.execute(_DECLARE_DEAD, {"node": node, "beat": beat}).rowcount > 0

        return await self._run(work, within)

    async def owned_epochs(self, node: str, *, within: float) -> dict[str, int]:
        """Return the epochs of the sessions that a node owns, by id."""
        columns = schema.session.c
        statement = select(columns.id, columns.epoch).where(columns.node == node)

        def work(connection: Connection) -> dict[str, int]:
            return {row[0]: row[1] for row in connection.execute(statement)}

        return await self._run(work, within)

    async def set_draining(self, node: str, *, within: float) -> None:
        """Report that a node takes on no more sessions. Cannot be undone."""
        columns = schema.node.c
        statement = (
            update(schema.node)
            .where(columns.id == node, columns.state == NodeState.UP.value)
            .values(state=NodeState.DRAINING.value)
        )

        def work(connection: Connection) -> None:
            connection.execute(statement)

        await self._run(work, within)


def _seen(rows: Iterable[Mapping[str, Any]]) -> list[SeenNode]:
    return [SeenNode(node_record(row), row["beat"], row["is_expired"]) for row in rows]
