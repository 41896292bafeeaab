"""The connections of legacy clients, which are notified of changed lists without a request of theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection

from ..sdk.access import RequestContext
from ..sdk.caller import connection_of

NOTIFY_SECONDS = 10.0
"""Seconds that notifying a legacy client of a change may take."""

logger = logging.getLogger("statehold.server")


class LegacyConnections:
    """The initialized connections of one server. A connection leaves when it ends. `spawn` starts a background task."""

    def __init__(self, spawn: Callable[..., object]) -> None:
        self._spawn = spawn
        self._connections: set[Connection] = set()
        self._by_session: dict[str, Connection] = {}

    async def add(self, ctx: RequestContext, params: types.NotificationParams) -> None:
        """Handle `notifications/initialized`: keep the connection until it ends."""
        connection = connection_of(ctx)
        if connection not in self._connections:
            self._connections.add(connection)
            connection.exit_stack.callback(self._connections.discard, connection)
            if connection.session_id is not None:
                self._by_session[connection.session_id] = connection
                connection.exit_stack.callback(self._by_session.pop, connection.session_id)

    def of_session(self, session_id: str) -> Connection | None:
        """Return the connection of a session of Streamable HTTP."""
        return self._by_session.get(session_id)

    def notify_all(self, method: str) -> None:
        """Notify every client, each in a task of its own: one that reads nothing must not delay the others."""
        for connection in list(self._connections):
            self._spawn(notify, connection, method)


async def notify(
    connection: Connection, method: str, params: Mapping[str, Any] | None = None
) -> None:
    """Notify one client, within NOTIFY_SECONDS. Never raises."""
    with anyio.move_on_after(NOTIFY_SECONDS):
        try:
            await connection.outbound.notify(method, params)
        except Exception:
            logger.debug("a client disconnected before it was notified", exc_info=True)
