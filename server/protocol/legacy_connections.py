"""The connections of legacy clients, which are notified of changed lists without a request of theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection

from ...sessions.cluster.placement import place_here
from ...sessions.errors import SessionError, SessionNotFound
from ...sessions.records import Principal
from ...sessions.transitions.create import CreationOptions
from ..gateway.gateway import Gateway
from ..sdk.access import RequestContext
from ..sdk.caller import LOG_LEVEL, connection_of

NOTIFY_SECONDS = 10.0
"""Seconds that notifying a legacy client of a change may take."""

logger = logging.getLogger("statehold.server")

AUTO_SESSION = "statehold.session"
"""The key under which a legacy connection keeps the id of its own session."""


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


async def set_level(ctx: RequestContext, params: types.SetLevelRequestParams) -> types.EmptyResult:
    """Handle `logging/setLevel`: the connection keeps the level."""
    connection_of(ctx).state[LOG_LEVEL] = params.level
    return types.EmptyResult()


async def notify(
    connection: Connection, method: str, params: Mapping[str, Any] | None = None
) -> None:
    """Notify one client, within NOTIFY_SECONDS. Never raises."""
    with anyio.move_on_after(NOTIFY_SECONDS):
        try:
            await connection.outbound.notify(method, params)
        except Exception:
            logger.debug("a client disconnected before it was notified", exc_info=True)


class AutoSessions:
    """Creates a session with the first call of a legacy connection, and closes it with the connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def id_of(self, connection: Connection, principal: Principal) -> str:
        """Return the session of a connection; a new one when there is none or it was closed."""
        session_id = connection.state.get(AUTO_SESSION)
        if session_id is not None and await self._is_over(principal, session_id):
            connection.state.pop(AUTO_SESSION, None)
            session_id = None
        if session_id is not None:
            return session_id
        options = CreationOptions(namespace=self._gateway.config.namespace)
        # On this node, to which the connection belongs.
        with place_here():
            session = await self._gateway.registry.create(principal, options)
        session.is_unreported = True
        session_id = connection.state.setdefault(AUTO_SESSION, session.id)
        if session_id == session.id:
            # Below the existing callbacks, so that it runs after them: calls have to end before the session closes.
            above = connection.exit_stack.pop_all()
            connection.exit_stack.push_async_callback(self._close, principal, session_id)
            connection.exit_stack.push_async_exit(above)
        else:
            await self._close(principal, session.id)
        return session_id

    async def _is_over(self, principal: Principal, session_id: str) -> bool:
        if self._gateway.registry.live(principal, session_id) is not None:
            return False
        try:
            info = await self._gateway.registry.info(principal, session_id)
        except SessionNotFound:
            return True
        return info["status"] in ("closing", "closed")

    async def _close(self, principal: Principal, session_id: str) -> None:
        try:
            await self._gateway.registry.close(principal, session_id, reason="connection_closed")
        except SessionError as error:
            logger.debug("session of a closed connection: %s", error)
