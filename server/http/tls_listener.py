"""The listening socket of a server with a certificate. Connections count from their start: handshakes are bounded too."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from ...access.config.private_file import load_certificate, stamp_of
from ...access.config.types import ConfigError
from ..config.ports import TlsSettings
from ..sockets.local_socket import accept_sockets
from .bounded_protocol import BoundedHttp
from .clients import Clients
from .proxies import TrustedProxies

ALPN: Final = ["http/1.1"]

logger = logging.getLogger("statehold.server")

HANDSHAKE_SECONDS: Final = 10.0


class ServerCertificate:
    """A certificate and its key. New connections take the `context`; open ones keep theirs.

    Raises:
        ConfigError: the files cannot be read or used, or the key is open to other users.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        # Before the content, so that a change in between is noticed.
        self._stamp = stamp_of(settings.certificate, settings.key)
        self.context = _context_of(settings)

    def refresh(self) -> None:
        """Read the files again if they have changed. Files with a mistake are reported in the log, and not used."""
        settings = self._settings
        stamp = stamp_of(settings.certificate, settings.key)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.context = _context_of(settings)
        except ConfigError as error:
            logger.error("the former certificate stays in use: %s", error)
        else:
            logger.info(
                "new connections use the certificate that is now in %s", settings.certificate
            )


def _context_of(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(ALPN)
    load_certificate(context, settings.certificate, settings.key, setting="server.tls")
    return context


class TlsHandshake:
    """A connection until its handshake is over, as a ClientConnection that waits for a request."""

    written_bytes = body_bytes = 0

    def __init__(self, clients: Clients, address: str) -> None:
        self.address = address
        self.scope = anyio.CancelScope()
        self._clients = clients
        self._is_over = False

    def end(self) -> None:
        """Count it no more: the HTTP protocol does, or the handshake failed. A second call has no effect."""
        self._is_over = True
        self._clients.leave(self)

    def unsent_bytes(self) -> int:
        return 0

    def key(self) -> Hashable:
        return self.address

    def abort(self) -> None:
        if not self._is_over:
            self.scope.cancel()

    def close(self) -> None:
        self.abort()

    def refuse(self) -> None:
        self.abort()


class TlsHttp(BoundedHttp):
    """The HTTP protocol of a connection after its handshake."""

    handshake: TlsHandshake | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self.handshake is not None:
            self.handshake.end()
        super().connection_made(transport)


class TlsListener:
    """Accepts the connections of a listening socket until stop(). `create` returns the protocol of one, a TlsHttp."""

    def __init__(
        self,
        listener: socket.socket,
        certificate: ServerCertificate,
        clients: Clients,
        proxies: TrustedProxies | None,
        create: Callable[[], Any],
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._listener = listener
        self._certificate = certificate
        self._clients = clients
        self._proxies = proxies
        self._create = create
        self._handshake_seconds = handshake_seconds
        self._accepting = anyio.CancelScope()

    async def serve(self, tasks: TaskGroup) -> None:
        """Accept connections; `tasks` does their handshakes."""
        self._listener.setblocking(False)
        with self._accepting:
            await accept_sockets(self._listener, tasks, self._secure)
        # The event loop watches it no more.
        self._listener.close()

    def stop(self) -> None:
        """Refuse new connections, and keep those that are accepted."""
        self._accepting.cancel()

    async def _secure(self, connection: socket.socket) -> None:
        handshake = TlsHandshake(self._clients, _address_of(connection))
        is_proxy = self._proxies is not None and self._proxies.trusts(handshake.address)
        if not self._clients.admit(handshake, is_proxy=is_proxy):
            connection.close()
            return
        try:
            with handshake.scope:
                await asyncio.get_running_loop().connect_accepted_socket(
                    partial(self._protocol, handshake),
                    connection,
                    ssl=self._certificate.context,
                    ssl_handshake_timeout=self._handshake_seconds,
                )
        except OSError:
            # No TLS, too slow, or gone.
            connection.close()
        finally:
            handshake.end()
        if handshake.scope.cancelled_caught:
            connection.close()

    def _protocol(self, handshake: TlsHandshake) -> TlsHttp:
        protocol = self._create()
        assert isinstance(protocol, TlsHttp)
        protocol.handshake = handshake
        return protocol


def _address_of(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:
        # It has ended already.
        return ""


def tls_protocol(clients: Clients, proxies: TrustedProxies | None) -> type[TlsHttp]:
    """Return the protocol class of a server with a certificate."""

    class Https(TlsHttp):
        server_clients = clients
        server_proxies = proxies

    return Https
