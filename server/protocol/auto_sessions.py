"""The sessions that legacy connections get without asking, when `server.auto_session` is set."""

from __future__ import annotations

import logging

from mcp.server.connection import Connection

from ...sessions.errors import SessionError, SessionNotFound
from ...sessions.records import Principal
from ...sessions.transitions.create import SessionOptions
from ..gateway.gateway import Gateway

logger = logging.getLogger("statehold.server")

AUTO_SESSION = "statehold.session"
"""The key under which a legacy connection keeps the id of its own session."""


class AutoSessions:
    """Creates one session for each legacy connection with its first call, and closes it with the connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def id_of(self, connection: Connection, principal: Principal) -> str:
        """Return the session of a connection; a new one when there is none or it was closed."""
        current = connection.state.get(AUTO_SESSION)
        if current is not None and await self._is_over(principal, current):
            connection.state.pop(AUTO_SESSION, None)
            current = None
        if current is not None:
            return current
        created = await self._gateway.registry.create(
            principal, SessionOptions(namespace=self._gateway.config.namespace)
        )
        current = connection.state.setdefault(AUTO_SESSION, created.id)
        if current == created.id:
            # Below the present callbacks: calls that run in the session have to end before it is closed.
            above = connection.exit_stack.pop_all()
            connection.exit_stack.push_async_callback(self._close, principal, current)
            connection.exit_stack.push_async_exit(above)
        else:
            await self._close(principal, created.id)
        return current

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


__all__ = ["AutoSessions"]
