"""The port of the console in a process without one that a browser may use: a loopback port, opened when it is asked for."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from ..server.gateway.gateway import Gateway
from ..server.http.host_check import HostCheck
from ..server.http.open_streams import OpenStreams
from ..server.sockets.local_socket import send_content, send_error
from ..sessions.errors import ServiceUnavailable, SessionError, StoreUnavailable
from ..sessions.json_codec import JSON
from .logins import CODE_SECONDS, Logins

LOOPBACK: Final = "127.0.0.1"
ACCEPT_SECONDS: Final = 10.0
PORT_FILE: Final = "console.port"
IN_USE_SECONDS: Final = 86_400.0


class ConsolePort:
    """The address of the console of one process. `async with` bounds the life of the port that url() opens.

    The port is kept in the data folder, and tried first by the next process, so that open pages and addresses given to
    people outlive a restart. If it was asked for within a day, that process opens it at its start.

    `listener` is the socket on which the process serves the console already. It is used if this machine reaches it over
    loopback: elsewhere browsers refuse the cookie without TLS.
    """

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        logins: Logins,
        gateway: Gateway,
        listener: socket.socket | None = None,
    ) -> None:
        self._routes = routes
        self._logins = logins
        self._config = gateway.config
        self._own_ports = gateway.own_ports
        self._own_url = (
            None if listener is None else _loopback_url(listener, self._config.server.scheme)
        )
        self._address = gateway.console_address
        self._address.serve_at(self._own_url)
        folder = None if self._config.ephemeral else self._config.data
        self._last_port = None if folder is None else LastPort(folder / PORT_FILE)
        self._opened: socket.socket | None = None
        self._opening = anyio.Lock()
        self._tasks: TaskGroup | None = None
        self._streams = OpenStreams()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        if self._own_url is None and self._last_port is not None:
            self._tasks.start_soon(self._open_again, self._last_port)
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
            port = self._opened.getsockname()[1]
            if self._last_port is not None:
                await anyio.to_thread.run_sync(self._last_port.write, port)
            url = f"http://{LOOPBACK}:{port}"
            self._address.serve_at(url)
            return url

    async def handler(self, members: JSON, connection: socket.socket) -> None:
        """Answer the verb `console` of the local socket with an address at which a browser logs in, once."""
        with closing(connection):
            try:
                url, code = await self.url(), await self._logins.mint_code()
            except SessionError as error:
                await send_error(connection, error.code, error.message, error.recovery)
                return
            except StoreUnavailable as error:
                await send_error(connection, "store_unavailable", str(error), "Try again later.")
                return
            # The code is in the fragment, which browsers do not send, so no log has it.
            address = f"{url}/console#code={code}"
            await send_content(connection, {"url": address, "seconds": CODE_SECONDS})

    async def _open_again(self, last: LastPort) -> None:
        if await anyio.to_thread.run_sync(last.is_in_use):
            with suppress(ServiceUnavailable):
                await self.url()

    async def _listen(self) -> socket.socket:
        """Listen at the configured port; without one at that of an earlier process, or at any if another program has it."""
        port = self._config.server.console_port
        if not port and self._last_port is not None:
            with suppress(OSError):
                last = await anyio.to_thread.run_sync(self._last_port.read)
                return socket.create_server((LOOPBACK, last))
        return socket.create_server((LOOPBACK, port))

    async def _open(self) -> socket.socket:
        if self._tasks is None:
            raise ServiceUnavailable("The process starts, or ends.")
        # Imported here: a background server needs uvicorn for nothing else.
        await anyio.to_thread.run_sync(_import_server)
        from ..server.process.http_server import HttpServer, plain_config

        try:
            listener = await self._listen()
        except OSError as error:
            raise ServiceUnavailable(
                f"The console cannot listen on {LOOPBACK}: {error.strerror}.",
                recovery="Choose another server.console_port.",
            ) from None
        # No page of a session may reach the console.
        self._own_ports.add(listener.getsockname()[1])
        routes = self._streams.wrap(Starlette(routes=self._routes))
        app = HostCheck(routes, hosts=[LOOPBACK], origins=[])
        server = HttpServer(plain_config(app, self._config.http))
        self._tasks.start_soon(server.serve, [listener])
        with anyio.move_on_after(ACCEPT_SECONDS):
            await server.accepts.wait()
        return listener


class LastPort:
    """The file with the port at which the last process of a data folder served the console."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> int:
        """Return the port; 0 if there is none."""
        try:
            port = int(self._path.read_text("ascii"))
        except (OSError, ValueError):
            return 0
        return port if 0 < port <= 65_535 else 0

    def is_in_use(self) -> bool:
        """Return whether an address of the port was given out within a day."""
        try:
            return time.time() - self._path.stat().st_mtime < IN_USE_SECONDS
        except OSError:
            return False

    def write(self, port: int) -> None:
        """Keep the port. A folder that cannot be written costs the address only."""
        with suppress(OSError):
            replacement = self._path.with_suffix(".new")
            replacement.write_text(str(port), "ascii")
            replacement.replace(self._path)


def _import_server() -> None:
    from ..server.process import http_server  # noqa: F401  # pyright: ignore[reportUnusedImport]


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
