"""The loop that accepts the connections of a listening socket, one task per connection."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

RETRY_SECONDS: Final = 1.0

ServeSocket = Callable[[socket.socket], Awaitable[None]]

logger = logging.getLogger("statehold.server")


async def accept_sockets(listener: socket.socket, tasks: TaskGroup, serve: ServeSocket) -> None:
    """Accept connections until cancelled, and serve each in a task of `tasks`. A failing one is logged.

    `serve` closes the connection.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError as error:
            # The process has no descriptor left; clients that leave return theirs.
            logger.error("a client cannot be accepted: %s", error.strerror)
            await anyio.sleep(RETRY_SECONDS)
        else:
            tasks.start_soon(serve_socket, connection, serve)


async def serve_socket(connection: socket.socket, serve: ServeSocket) -> None:
    """Serve one connection. A failure is logged, unless the connection broke."""
    try:
        await serve(connection)
    except ConnectionError:
        return
    except Exception:
        # One client must not end the others.
        logger.exception("a connection failed")
