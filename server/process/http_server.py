"""uvicorn as this project runs it: without its signal handlers, with our bounds on connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Final, Literal

import anyio
import uvicorn

from ..config.http import HttpSettings
from ..http.clients import Clients
from ..http.listener import BACKLOG
from .open_files import allowed_connections

ACCEPTS: Final = 64
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepts.set()
        for listener in sockets or ():
            # asyncio also used ACCEPTS as the length of the queue of the socket.
            listener.listen(BACKLOG)

    def stop_accepting(self) -> None:
        """Refuse new connections. Requests on those that are accepted are still answered."""
        for server in self.servers:
            server.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            # Otherwise the end of the event loop would cancel the lifespan, and uvicorn log a traceback.
            await self.lifespan.shutdown()
        self.ended.set()


def clients_of(settings: HttpSettings) -> Clients:
    total = allowed_connections(settings.connections, reserved_files=settings.reserved_files)
    return Clients(settings, total=total)


def http_protocol(clients: Clients) -> type[asyncio.Protocol] | Literal["auto"]:
    try:
        from ..http.bounded_protocol import bounded_protocol
    except ImportError:
        # Without httptools, uvicorn uses h11, which limits heads but not connections.
        return "auto"
    return bounded_protocol(clients)


__all__ = ["ACCEPTS", "HttpServer", "clients_of", "http_protocol"]
