"""The peer port of a node: the TCP port at which nodes on other machines reach it.

Requests are signed and nodes prove themselves, but nothing is encrypted: the port belongs into a network of the nodes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from ipaddress import ip_address
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ..sockets.accept_loop import accept_sockets
from . import tcp
from .assertion import AssertionRefused, Assertions
from .handshake import admit
from .messages import LINE_LIMIT, ConnectionEnded, MessageConnection
from .signed_connection import VerifiedConnection

HANDSHAKE_SECONDS: Final = 2.0

HANDSHAKES: Final = 64
"""Connections at once whose other end has not proved itself. They hold open files, of which a reserve is kept for others."""
HANDSHAKES_OF_ADDRESS: Final = 16
"""The same of one address, so that one program leaves room to the nodes."""
LOG_SECONDS: Final = 60.0
"""Seconds between two log lines about refused connections."""

Serve = Callable[[MessageConnection], Awaitable[None]]

logger = logging.getLogger("statehold.server")


class PeerPort:
    """A peer port, listened on until close(), which may be called twice. Connections wait until accept() serves them."""

    def __init__(self, listener: socket.socket, address: str) -> None:
        self._listener = listener
        self.address = address
        """`host:port` at which the other nodes reach it."""
        self._handshakes: Counter[str] = Counter()
        """By address, the connections whose other end has not proved itself yet."""
        self._refused = 0
        """Refused connections since the last log line."""
        self._logged_at: float | None = None

    async def accept(self, assertions: Assertions, tasks: TaskGroup, serve: Serve) -> None:
        """Serve the connections of nodes of the cluster in tasks of `tasks`, until cancelled."""
        await accept_sockets(self._listener, tasks, partial(self._serve, assertions, serve))

    def close(self) -> None:
        self._listener.close()

    async def _serve(self, assertions: Assertions, serve: Serve, connection: socket.socket) -> None:
        address = _address_of(connection)
        is_full = self._handshakes[address] >= HANDSHAKES_OF_ADDRESS
        if is_full or self._handshakes.total() >= HANDSHAKES:
            connection.close()
            self._note_refusal("there are too many")
            return
        self._handshakes[address] += 1
        try:
            streams = await self._open(assertions, connection)
        finally:
            self._handshakes[address] -= 1
            if not self._handshakes[address]:
                del self._handshakes[address]
        if streams is not None:
            reader, writer = streams
            with closing(writer):
                await serve(VerifiedConnection(reader, writer, assertions))

    async def _open(
        self, assertions: Assertions, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return the streams of a node of the cluster; None if there is another program at the other end."""
        try:
            tcp.set_options(connection)
            with anyio.fail_after(HANDSHAKE_SECONDS):
                await admit(connection, assertions)
            return await asyncio.open_connection(sock=connection, limit=LINE_LIMIT)
        except AssertionRefused as error:
            connection.close()
            self._note_refusal(f"the assertion of the last one {error}")
        except (OSError, TimeoutError, ConnectionEnded):
            connection.close()
        except BaseException:
            connection.close()
            raise
        return None

    def _note_refusal(self, reason: str) -> None:
        """Log refused connections, at most once in LOG_SECONDS: anybody can cause them."""
        self._refused += 1
        now = asyncio.get_running_loop().time()
        if self._logged_at is None or now - self._logged_at >= LOG_SECONDS:
            logger.warning(
                "%d connections to the peer port were refused: %s", self._refused, reason
            )
            self._logged_at, self._refused = now, 0


async def open_peer_port(listen: str, advertise: str, database: str) -> PeerPort:
    """Listen at `HOST:PORT`; `advertise` is `HOST` or `HOST:PORT`, or empty.

    If it is empty and the host is every address, the port is advertised with the address from which this machine reaches
    the host `database`.

    Raises:
        OSError: the address is in use, or not of this machine.
        ValueError: an address is malformed, or the one to advertise is not known.
    """
    host, port = tcp.split_address(listen)
    listener = await tcp.listen(host, port or 0)
    try:
        bound = listener.getsockname()
        address = await _advertised(str(bound[0]), int(bound[1]), advertise, database)
        return PeerPort(listener, address)
    except BaseException:
        listener.close()
        raise


async def _advertised(host: str, port: int, advertise: str, database: str) -> str:
    if advertise:
        given_host, given_port = tcp.split_address(advertise)
        return tcp.join_address(given_host, given_port or port)
    if ip_address(host).is_unspecified:
        if not database:
            raise ValueError(
                f"{host} is every address of this machine; advertise the one at which the other nodes reach it"
            )
        host = await tcp.route_address(database, port)
    return tcp.join_address(host, port)


def _address_of(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:
        # It has ended already.
        return ""


__all__ = ["PeerPort", "open_peer_port"]
