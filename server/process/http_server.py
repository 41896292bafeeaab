"""uvicorn as this project runs it: without its signal handlers, with our bounds on connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, Literal, cast

import anyio
import uvicorn
from starlette.types import ASGIApp

from ...access.config.types import ConfigError
from ..config.ports import HttpSettings
from ..config.sections import ServerSettings
from ..http.clients import Clients
from ..http.listener import BACKLOG
from ..http.proxies import TrustedProxies
from .open_files import allowed_connections

if TYPE_CHECKING:
    from ..http.tls_listener import TlsListener

MAX_ACCEPTS: Final = 64
"""Connections that the event loop accepts at once, before any of them is counted."""


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: we handle signals, since sessions have to be drained first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepts = anyio.Event()
        self.ended = anyio.Event()
        self.tls_listener: TlsListener | None = None
        """The listener of connections with TLS, which uvicorn does not accept itself."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepts.set()
        for listener in sockets or ():
            # asyncio also used MAX_ACCEPTS as the length of the queue of the socket.
            listener.listen(BACKLOG)

    def stop_accepting(self) -> None:
        """Refuse new connections. Requests on those that are accepted are still answered."""
        for server in self.servers:
            server.close()
        if self.tls_listener is not None:
            self.tls_listener.stop()

    def create_protocol(self) -> asyncio.Protocol:
        """Return the protocol of one more connection, as uvicorn makes it for those that it accepts."""
        create = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        return create(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            # Otherwise the end of the event loop would cancel the lifespan, and uvicorn log a traceback.
            await self.lifespan.shutdown()
        self.ended.set()


def clients_of(settings: HttpSettings) -> Clients:
    total = allowed_connections(settings.connections, reserved_files=settings.reserved_files)
    return Clients(settings, total=total)


def proxies_of(settings: ServerSettings) -> TrustedProxies | None:
    if not settings.trusted_proxies:
        return None
    return TrustedProxies(settings.trusted_proxies, needs_proxy=settings.tls is None)


def plain_config(app: ASGIApp, settings: HttpSettings) -> uvicorn.Config:
    """Return the configuration of a server for people or programs of the operator: plain HTTP, without a lifespan."""
    return server_config(app, http_protocol(clients_of(settings)), lifespan="off")


def server_config(
    app: ASGIApp,
    protocol: type[asyncio.Protocol] | Literal["auto"],
    *,
    lifespan: Literal["auto", "off"] = "auto",
    keep_alive_seconds: int = 5,
) -> uvicorn.Config:
    """Return the configuration that all servers of a process have."""
    return uvicorn.Config(
        app,
        http=protocol,
        backlog=MAX_ACCEPTS,
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        interface="asgi3",
        # The protocol reads them, from trusted proxies only.
        proxy_headers=False,
        timeout_keep_alive=keep_alive_seconds,
        # Running calls have ended by then; an open stream must not keep the process alive.
        timeout_graceful_shutdown=1,
    )


def http_protocol(
    clients: Clients, proxies: TrustedProxies | None = None, *, is_tls: bool = False
) -> type[asyncio.Protocol] | Literal["auto"]:
    """Return the HTTP protocol.

    Raises:
        ConfigError: the settings need httptools, which this Python does not have.
    """
    try:
        from ..http.bounded_protocol import bounded_protocol
    except ImportError:
        if is_tls or proxies is not None:
            raise ConfigError(
                "server.tls, server.trusted_proxies: this Python has no httptools; install it"
            ) from None
        # Without httptools, uvicorn uses h11, which limits heads but not connections.
        return "auto"
    if not is_tls:
        return bounded_protocol(clients, proxies)
    from ..http.tls_listener import tls_protocol

    return tls_protocol(clients, proxies)
