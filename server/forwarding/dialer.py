"""The way to another node: the Unix socket of a node of this data folder, else the peer port that the node's row names."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from ...sessions.errors import StoreUnavailable
from ...sessions.records import NodeRecord
from ..sockets.unix_sockets import is_same_user
from . import tcp
from .address import NodeSockets
from .assertion import AssertionRefused, Assertions
from .handshake import introduce
from .messages import LINE_LIMIT, ConnectionEnded, MessageConnection
from .signed_connection import SignedConnection

CONNECT_SECONDS = 2.0

logger = logging.getLogger("statehold.server")


class NodeUnreachable(Exception):
    """Raised when a node cannot be reached, so that a request was not begun. `is_silent`: it lives, but does not answer."""

    def __init__(self, *, is_silent: bool = False) -> None:
        super().__init__("the node cannot be reached")
        self.is_silent = is_silent


class NodeRefused(NodeUnreachable):
    """Raised when a node must not be connected to, or does not serve the clients of this one. To wait does not help."""


class Dialer(Protocol):
    """Opens connections to other nodes."""

    async def connect(self, node: str) -> MessageConnection:
        """Return a new connection to a node.

        Raises:
            NodeUnreachable: the node takes no connections.
        """
        ...


class UnixDialer:
    """Connects to the nodes of a data folder."""

    def __init__(self, sockets: NodeSockets) -> None:
        self._sockets = sockets

    def has(self, node: str) -> bool:
        """Whether a node is one of the data folder."""
        return self._sockets.path(node).exists()

    async def connect(self, node: str) -> MessageConnection:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            path = os.fspath(self._sockets.path(node))
            with anyio.fail_after(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(connection, path)
                if not is_same_user(connection):
                    raise NodeUnreachable
                reader, writer = await asyncio.open_unix_connection(
                    sock=connection, limit=LINE_LIMIT
                )
            return MessageConnection(reader, writer)
        except (OSError, TimeoutError):
            connection.close()
            raise NodeUnreachable from None
        except BaseException:
            connection.close()
            raise


class ClusterDialer:
    """Connects to the nodes of a cluster. `find` returns the row of a node that lives, None if there is none.

    Only addresses that `admits` allows are connected to: a row of the database must not make this node call any host.
    """

    def __init__(
        self,
        unix: UnixDialer,
        assertions: Assertions,
        find: Callable[[str], Awaitable[NodeRecord | None]],
        admits: Callable[[str], bool],
    ) -> None:
        self._unix = unix
        self._assertions = assertions
        self._find = find
        self._admits = admits

    async def connect(self, node: str) -> MessageConnection:
        if self._unix.has(node):
            return await self._unix.connect(node)
        try:
            record = await self._find(node)
        except StoreUnavailable:
            raise NodeUnreachable(is_silent=True) from None
        if record is None or not record.peer:
            raise NodeUnreachable
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                return await self._connect(node, record.peer)
        except tcp.AddressRefused as error:
            logger.warning("node %s is not connected to: %s", node, error)
            raise NodeRefused from None
        except AssertionRefused:
            logger.warning("node %s is not connected to: another program is at its address", node)
        except (OSError, TimeoutError, ConnectionEnded):
            pass
        raise NodeUnreachable

    async def _connect(self, node: str, peer: str) -> SignedConnection:
        connection = await tcp.connect(peer, self._admits)
        try:
            await introduce(connection, self._assertions, node)
            reader, writer = await asyncio.open_connection(sock=connection, limit=LINE_LIMIT)
        except BaseException:
            connection.close()
            raise
        return SignedConnection(reader, writer, self._assertions, node)


__all__ = ["ClusterDialer", "Dialer", "NodeRefused", "NodeUnreachable", "UnixDialer"]
