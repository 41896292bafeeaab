"""The background server: it serves every client of its data folder over its local socket, until nobody needs it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from ..gateway.gateway import Gateway
from ..shutdown import Shutdown
from .clients import LocalClients
from .folder import SharedFolder

FIRST_CLIENT_SECONDS = 10.0
"""Seconds that a server waits for its first client before it may end."""
CHECK_SECONDS = 5.0
"""Seconds between two checks whether the server is needed."""
LEAST_CHECK_SECONDS = 0.1

logger = logging.getLogger("statehold.server")


class SharedServer:
    """The server of one data folder. serve() runs until `shutdown` begins, drains, and ends every connection.

    It begins the shutdown itself when for `server.linger_seconds` no client was connected, no session live and no console
    open. `has_viewer` tells whether one is.
    """

    def __init__(
        self,
        gateway: Gateway,
        folder: SharedFolder,
        clients: LocalClients,
        shutdown: Shutdown,
        has_viewer: Callable[[], bool],
    ) -> None:
        self._gateway = gateway
        self._has_viewer = has_viewer
        self._folder = folder
        self._clients = clients
        self._shutdown = shutdown

    async def serve(self, report_listening: Callable[[], None]) -> None:
        """Accept clients until the shutdown begins, then drain the sessions and wait for the end of the connections.

        Raises:
            OSError: the folder cannot be written.
        """
        with self._folder.marked(self._gateway.node.id):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_when_unused)
                report_listening()
                await self._shutdown.begin_event.wait()
                tasks.cancel_scope.cancel()
        await self._gateway.drain()
        await self._clients.end()

    async def _end_when_unused(self) -> None:
        linger = self._gateway.config.server.linger_seconds
        with anyio.move_on_after(FIRST_CLIENT_SECONDS):
            await self._clients.first.wait()
        used_at = anyio.current_time()
        while True:
            if self._clients.count or self._clients.live_sessions() or self._has_viewer():
                used_at = anyio.current_time()
            elif anyio.current_time() - used_at >= linger:
                logger.info(
                    "no client is connected, no session live, no console open: the server ends"
                )
                self._shutdown.begin()
                return
            await anyio.sleep(min(CHECK_SECONDS, max(LEAST_CHECK_SECONDS, linger / 10)))
