"""The peer port of a node: the TCP port at which nodes on other machines reach it.

Requests are signed and nodes prove themselves. With TLS, both sides also have certificates of one authority, and nobody else
reads along; without TLS the port belongs into a network of the nodes alone.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

from anyio.abc import TaskGroup

from ...access.config.private_file import load_certificate
from ...access.config.types import ConfigError
from ..config.ports import ClusterSettings
from ..sockets.local_socket import accept_sockets
from . import tcp
from .node_server import NodeServer
from .owner import OtherEnd

HANDSHAKE_SECONDS: Final = 2.0

MAX_HANDSHAKES: Final = 64
"""Connections at once whose other end has not proved itself. They hold open files, of which a reserve is kept for others."""
MAX_HANDSHAKES_OF_ADDRESS: Final = 16
"""The same of one address, so that one program leaves room to the nodes."""
HANDSHAKE_BYTES: Final = 4096
"""Bytes that a program may send before it has proved itself."""
LOG_SECONDS: Final = 60.0
"""Seconds between two log lines about refused connections."""

logger = logging.getLogger("statehold.server")


@dataclass(frozen=True, slots=True)
class Certificates:
    """The TLS contexts of one node, both with its certificate. The authority signs those of the nodes, and no others."""

    server: ssl.SSLContext
    """The context of the end that is connected to: it refuses programs without a certificate."""
    client: ssl.SSLContext
    """The context of the end that connects."""

    @classmethod
    def read(cls, settings: ClusterSettings) -> Self | None:
        """Return the certificates of a cluster; None if its nodes use no TLS.

        Raises:
            ConfigError: one file cannot be read or used, or the key is open to other users.
        """
        certificate, key, authority = settings.certificate, settings.key, settings.authority
        if certificate is None or key is None or authority is None:
            return None
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Nodes come and go with their addresses: the authority vouches for the cluster, and the proof for the node.
        client.check_hostname = False
        for context in (server, client):
            _load(context, certificate, key, authority)
        return cls(server, client)


def _load(context: ssl.SSLContext, certificate: Path, key: Path, authority: Path) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    load_certificate(context, certificate, key, setting="cluster", content="key of the node")
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise ConfigError(f"cluster.authority: {authority}: not usable ({error.reason})") from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"cluster.authority: {authority} cannot be read: {reason}") from None


class PeerPort:
    """A peer port, listened on until close(), which may be called twice. Connections wait until accept() serves them."""

    def __init__(
        self, listener: socket.socket, address: str, certificates: Certificates | None = None
    ) -> None:
        self._listener = listener
        self.certificates = certificates
        """The certificates of this node; None without TLS."""
        self.address = address
        """`host:port` at which the other nodes reach it."""
        self._handshakes: Counter[str] = Counter()
        """By address, the connections whose other end has not proved itself yet."""
        self._refused = 0
        """Refused connections since the last log line."""
        self._logged_at: float | None = None

    async def accept(self, server: NodeServer, tasks: TaskGroup) -> None:
        """Serve the connections of nodes of the cluster until cancelled."""
        await accept_sockets(self._listener, tasks, partial(self._serve, server))

    def close(self) -> None:
        self._listener.close()

    async def _serve(self, server: NodeServer, connection: socket.socket) -> None:
        address = _address_of(connection)
        is_full = self._handshakes[address] >= MAX_HANDSHAKES_OF_ADDRESS
        if is_full or self._handshakes.total() >= MAX_HANDSHAKES:
            connection.close()
            self.record_refusal("there are too many")
            return
        self._handshakes[address] += 1
        stranger = _Stranger(self, address)
        try:
            tcp.set_options(connection)
            tls = None if self.certificates is None else self.certificates.server
            seconds = None if tls is None else HANDSHAKE_SECONDS
            await server.serve(connection, stranger, tls=tls, tls_seconds=seconds)
        except ssl.SSLError as error:
            stranger.leave()
            self.record_refusal(f"TLS with the last one failed ({error.reason})")
        except (OSError, TimeoutError):
            stranger.leave()
        except BaseException:
            stranger.leave()
            raise

    def end_handshake(self, address: str) -> None:
        self._handshakes[address] -= 1
        if not self._handshakes[address]:
            del self._handshakes[address]

    def record_refusal(self, reason: str) -> None:
        """Log refused connections, at most once in LOG_SECONDS: anybody can cause them."""
        self._refused += 1
        now = asyncio.get_running_loop().time()
        if self._logged_at is None or now - self._logged_at >= LOG_SECONDS:
            logger.warning(
                "%d connections to the peer port were refused: %s", self._refused, reason
            )
            self._logged_at, self._refused = now, 0


class _Stranger(OtherEnd):
    """The other end of a connection; a stranger until its first request has a valid assertion."""

    def __init__(self, port: PeerPort, address: str) -> None:
        super().__init__()
        self._port = port
        self._address = address
        self._is_handshake = True
        self._is_node = False
        self._bytes = 0
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_SECONDS, self.abort)

    def accepts(self, size: int) -> bool:
        if self._is_node:
            return True
        self._bytes += size
        if self._bytes <= HANDSHAKE_BYTES:
            return True
        self.refuse("the last one sent too much before it proved itself")
        return False

    def admit(self) -> None:
        self._is_node = True
        self._end_handshake()

    def refuse(self, reason: str) -> None:
        if not self._is_node:
            self._port.record_refusal(reason)
        else:
            logger.warning("a node was refused: %s", reason)
        self.abort()

    def leave(self) -> None:
        super().leave()
        self._end_handshake()

    def _end_handshake(self) -> None:
        self._timer.cancel()
        if self._is_handshake:
            self._is_handshake = False
            self._port.end_handshake(self._address)


async def open_peer_port(
    listen: str, advertise: str, database: str, certificates: Certificates | None = None
) -> PeerPort:
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
        return PeerPort(listener, address, certificates)
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
