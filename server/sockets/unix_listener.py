"""A Unix socket that serves this user's processes, one task per connection."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from anyio.abc import TaskGroup

from .accept_loop import accept_sockets
from .unix_sockets import is_same_user

BACKLOG = 256
SEND_BYTES = 1 << 20

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

logger = logging.getLogger("statehold.server")


@contextmanager
def listen(path: Path, remove: Callable[[], None]) -> Generator[socket.socket]:
    """Listen at a path while the block runs; `remove` removes the file at its end.

    Raises:
        OSError: the socket cannot be created.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        try:
            yield listener
        finally:
            remove()


async def accept(
    listener: socket.socket, connections: TaskGroup, serve: Serve, *, line_limit: int
) -> None:
    """Accept connections until cancelled, and serve each in a task of `connections`. A failing one is logged."""
    await accept_sockets(listener, connections, partial(_serve_connection, serve, line_limit))


async def _serve_connection(serve: Serve, line_limit: int, connection: socket.socket) -> None:
    if not is_same_user(connection):
        connection.close()
        logger.warning("another user connected, and was refused")
        return
    # A screenshot then takes one write; the system limits the size.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=line_limit)
    with closing(writer):
        await serve(reader, writer)


__all__ = ["accept", "listen"]
