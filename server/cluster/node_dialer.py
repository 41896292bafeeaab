"""The way to another node: the Unix socket of a node of this data folder, else the peer port that the node's row names."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio

from ...sessions.errors import StoreUnavailable
from ...sessions.records import NodeRecord
from ..sockets.request import find_socket, is_same_user
from . import tcp
from .assertion import Assertion, AssertionRefused, Assertions, NodeRequest, SignedAssertions
from .node_connection import ConnectionEnded, NodeConnection
from .node_messages import HELLO, HTTP_VERB, PROOF_HEADER

CONNECT_SECONDS = 2.0
_HTTP: Final = json.dumps({"verb": HTTP_VERB}).encode() + b"\n"
"""The first line to a local socket. A process that does not serve the verb answers with a line that is no HTTP."""
_HELLO: Final = NodeRequest("GET", HELLO, (), b"")

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

    async def connect(self, node: str) -> NodeConnection:
        """Return a new connection to a node.

        Raises:
            NodeUnreachable: the node takes no connections.
        """
        ...


class UnixDialer:
    """Connects to the nodes of a data folder, over their local sockets in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._assertions = Assertions()

    def has(self, node: str) -> bool:
        """Whether a node is one of the data folder."""
        try:
            return os.path.exists(find_socket(self._folder, node))
        except FileNotFoundError:
            return False

    async def connect(self, node: str) -> NodeConnection:
        loop, connection = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            path = find_socket(self._folder, node)
            with anyio.fail_after(CONNECT_SECONDS):
                await loop.sock_connect(connection, path)
                if not is_same_user(connection):
                    raise NodeUnreachable
                await loop.sock_sendall(connection, _HTTP)
                new_connection = partial(NodeConnection, node, self._assertions)
                _, opened = await loop.create_unix_connection(new_connection, sock=connection)
            return opened
        except (OSError, TimeoutError):
            connection.close()
            raise NodeUnreachable from None
        except BaseException:
            connection.close()
            raise


class ClusterDialer:
    """Connects to the nodes of a cluster. `find` returns the row of a node that lives, None if there is none.

    Only addresses that `admits` allows are connected to: a row of the database must not make this node call any host. With
    `tls`, the other node has to have a certificate of the authority that it names.
    """

    def __init__(
        self,
        unix: UnixDialer,
        assertions: SignedAssertions,
        find: Callable[[str], Awaitable[NodeRecord | None]],
        admits: Callable[[str], bool],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._unix = unix
        self._assertions = assertions
        self._find = find
        self._admits = admits
        self._tls = tls

    async def connect(self, node: str) -> NodeConnection:
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
        except ssl.SSLError as error:
            logger.warning("node %s is not connected to: TLS failed: %s", node, error.reason)
        except (OSError, TimeoutError, ConnectionEnded):
            pass
        raise NodeUnreachable

    async def _connect(self, node: str, peer: str) -> NodeConnection:
        connection = await tcp.connect(peer, self._admits)
        try:
            _, opened = await asyncio.get_running_loop().create_connection(
                partial(NodeConnection, node, self._assertions),
                sock=connection,
                ssl=self._tls,
                # The certificate names the cluster, and the proof the node.
                server_hostname=None if self._tls is None else "",
            )
        except BaseException:
            connection.close()
            raise
        try:
            await self._introduce(opened)
        except BaseException:
            opened.abort()
            raise
        return opened

    async def _introduce(self, connection: NodeConnection) -> None:
        """Check that the node is at the other end, before it gets the request of a caller.

        Raises:
            AssertionRefused: another program is there.
            ConnectionEnded: the other end refuses this node, or sends something else.
        """
        assertion = connection.send(_HELLO, Assertion())
        _, headers = await connection.head()
        while await connection.read():
            pass
        proof = next((value for name, value in headers if name == PROOF_HEADER), b"")
        self._assertions.check_proof(assertion, proof)
