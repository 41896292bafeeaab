"""The port of the console in a process without one that a browser may use: a loopback port, opened when it is asked for."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from starlette.applications import Starlette

from ...sessions.errors import ServiceUnavailable
from ..console.app import Console
from ..gateway.gateway import Gateway
from ..http.host_check import HostCheck
from ..http.open_streams import OpenStreams

LOOPBACK: Final = "127.0.0.1"
ACCEPT_SECONDS: Final = 10.0


class ConsolePort:
    """The address of the console of one process. `async with` bounds the life of the port that url() opens.

    `listener` is the socket on which the process serves the console already. It is used if this machine reaches it over
    loopback: elsewhere browsers refuse the cookie without TLS.
    """

    def __init__(
        self, console: Console, gateway: Gateway, listener: socket.socket | None = None
    ) -> None:
        self._console = console
        self._config = gateway.config
        self._own_ports = gateway.own_ports
        self._own_url = (
            None if listener is None else _loopback_url(listener, self._config.server.scheme)
        )
        self._address = gateway.console_address
        self._address.serve_at(self._own_url)
        self._opened: socket.socket | None = None
        self._opening = anyio.Lock()
        self._tasks: TaskGroup | None = None
        self._streams = OpenStreams()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> bool | None:
        assert self._tasks is not None
        tasks, self._tasks = self._tasks, None
        self._streams.end()
        tasks.cancel_scope.cancel()
        try:
            return await tasks.__aexit__(None, None, None)
        finally:
            if self._opened is not None:
                self._opened.close()

    async def url(self) -> str:
        """Return the address of the console without a path. Opens the port at the first call.

        Raises:
            ServiceUnavailable: it cannot be opened.
        """
        if self._own_url is not None:
            return self._own_url
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open()
            url = f"http://{LOOPBACK}:{self._opened.getsockname()[1]}"
            self._address.serve_at(url)
            return url

    async def _open(self) -> socket.socket:
        if self._tasks is None:
            raise ServiceUnavailable("The process starts, or ends.")
        # Imported here: a background server needs uvicorn for nothing else.
        await anyio.to_thread.run_sync(_import_server)
        from .http_server import HttpServer

        try:
            listener = socket.create_server((LOOPBACK, self._config.server.console_port))
        except OSError as error:
            raise ServiceUnavailable(
                f"The console cannot listen on {LOOPBACK}: {error.strerror}.",
                recovery="Choose another server.console_port.",
            ) from None
        # No page of a session may reach the console.
        self._own_ports.add(listener.getsockname()[1])
        server = HttpServer(self._settings())
        self._tasks.start_soon(server.serve, [listener])
        with anyio.move_on_after(ACCEPT_SECONDS):
            await server.accepts.wait()
        return listener

    def _settings(self):
        import uvicorn

        from .http_server import ACCEPTS, clients_of, http_protocol

        routes = Starlette(routes=self._console.routes())
        app = HostCheck(self._streams.wrap(routes), hosts=[LOOPBACK], origins=[])
        return uvicorn.Config(
            app,
            http=http_protocol(clients_of(self._config.http)),
            backlog=ACCEPTS,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            interface="asgi3",
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )


def _import_server() -> None:
    from . import http_server  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _loopback_url(listener: socket.socket, scheme: str) -> str | None:
    """Return the loopback address of a listening socket, None if it has none."""
    host, port = listener.getsockname()[:2]
    address = ip_address(host)
    if address.is_unspecified:
        host = LOOPBACK if address.version == 4 else "[::1]"
    elif not address.is_loopback:
        return None
    elif address.version == 6:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"


__all__ = ["ConsolePort"]
