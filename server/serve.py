"""The two ways this process serves: over its own stdin and stdout, and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Literal, cast

import anyio
import uvicorn
from anyio.abc import TaskStatus
from mcp.server.runner import serve_dual_era_loop

from ..sessions.clock import SystemClock
from ..sessions.node import Node
from ..tools.processes.ledger import Ledger
from ..tools.upstream.service import UpstreamService
from .auth.tokens import StaticTokens
from .config.http import HttpSettings
from .config.model import Config, ConfigError
from .control.handler import control
from .gateway.gateway import Gateway
from .gateway.list_changes import ListWatcher
from .gateway.services import AnyService, forget, service_of, services_of
from .gateway.stores import store_of
from .http.app import HttpApplication
from .http.clients import Clients
from .http.open_streams import OpenStreams
from .http.port_holder import holder_of
from .logs import configure
from .open_files import allowed_connections, raise_limit
from .protocol.server import StateholdServer
from .stdio import Stdio, stdio_streams

logger = logging.getLogger("statehold.server")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
BACKLOG = 2048
"""Connections that may wait to be accepted."""
ACCEPTS = 64
"""Connections that the event loop accepts at once, before any of them is counted."""
ANSWER_SECONDS = 0.1
"""Seconds between the end of the last call and the end of the HTTP streams, for the answers to be sent."""


@asynccontextmanager
async def open_gateway(
    config: Config, *, address: str, alone: bool = False, port: int | None = None
) -> AsyncGenerator[Gateway]:
    """Open everything that a process needs to serve, and close it in reverse order.

    `alone`: the only caller is the user who started the process. `port`: the port on which it listens for callers, which
    no web page may reach. Child processes that an earlier process left behind are ended before any session is adopted.

    Raises:
        ConfigError: `store.url` names no database.
        StoreUnavailable: the data folder or the database cannot be used.
    """
    clock = SystemClock()
    folder = None if config.ephemeral else config.data
    store = store_of(config, replace_damaged=True)
    async with store, Node.start(store, folder, address=address, clock=clock.now) as node:
        ledger = Ledger(folder, node=node.id)
        try:
            await ledger.sweep()
            node.bury = ledger.sweep
            services = services_of(config, ledger, alone=alone, port=port)
            async with Gateway(config, store, node, services, clock=clock) as gateway:
                _connect_services(gateway, ledger, alone, port)
                async with control(
                    gateway.registry, store, folder, node.id, gateway.describe_services
                ):
                    yield gateway
        finally:
            with anyio.CancelScope(shield=True):
                await ledger.aclose()


def _connect_services(gateway: Gateway, ledger: Ledger, alone: bool, port: int | None) -> None:
    spawn = gateway.registry.spawn
    services = cast("dict[str, AnyService]", gateway.services)
    gateway.registry.on_purged.append(lambda session_id: spawn(forget, services, session_id))
    watcher = ListWatcher(gateway)

    def connect(service: AnyService) -> AnyService:
        if isinstance(service, UpstreamService):
            service.on_changed = watcher.handle_notification
        return service

    for service in services.values():
        connect(service)
    gateway.service_factory = lambda name, settings: connect(
        service_of(name, settings, gateway.config, ledger, alone=alone, port=port)
    )


# stdio


def run_stdio(config: Config) -> int:
    """Serve one client over stdin and stdout until it leaves or a signal comes. Return the exit code."""
    configure(config.log)
    raise_limit()
    anyio.run(_serve_stdio, config, backend_options={"use_uvloop": _has_uvloop()})
    return 0


async def _serve_stdio(config: Config) -> None:
    async with open_gateway(config, address=f"stdio, pid {os.getpid()}", alone=True) as gateway:
        mcp_server = StateholdServer(
            gateway, version=version("statehold"), pinned_name=config.server.session
        )
        async with stdio_streams() as stdio, anyio.create_task_group() as tasks:
            shutdown = Shutdown()
            await tasks.start(_watch_signals, shutdown)
            tasks.start_soon(_watch_client, gateway, mcp_server, stdio, shutdown)
            tasks.start_soon(_end_stdio, gateway, mcp_server, stdio, shutdown)
            await serve_dual_era_loop(
                mcp_server,
                stdio.read_stream,
                stdio.write_stream,
                lifespan_state={},
                init_options=mcp_server.create_initialization_options(),
            )
            tasks.cancel_scope.cancel()


async def _watch_client(
    gateway: Gateway, mcp_server: StateholdServer, stdio: Stdio, shutdown: Shutdown
) -> None:
    """End the process when the client has closed its side and its requests are answered, or the grace time is over."""
    await stdio.client_closed.wait()
    mcp_server.stop_listening()
    mcp_server.waiting_calls.abandon()
    await stdio.wait_answered(gateway.config.timeouts.close_grace)
    shutdown.begin()


async def _end_stdio(
    gateway: Gateway, mcp_server: StateholdServer, stdio: Stdio, shutdown: Shutdown
) -> None:
    await shutdown.begin_event.wait()
    await gateway.registry.drain()
    mcp_server.stop_listening()
    await stdio.end()


# Shutdown of both.


class Shutdown:
    """The orderly end of a process: it refuses new calls, lets running ones finish, and pauses its sessions."""

    def __init__(self) -> None:
        self.begin_event = anyio.Event()
        self.force_event = anyio.Event()
        """Set by a second signal: do not wait for connections."""
        self.is_serving = False
        """Whether the process serves already. Before that, a signal cancels the start."""

    def begin(self) -> None:
        self.begin_event.set()

    def handle_signal(self) -> None:
        if self.begin_event.is_set():
            self.force_event.set()
        self.begin()


async def _watch_signals(
    shutdown: Shutdown, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        task_status.started()
        async for _ in signals:
            shutdown.handle_signal()


# HTTP


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: we handle signals, since sessions have to be drained first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            # asyncio also used ACCEPTS as the length of the queue of the socket.
            listener.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            # Otherwise the end of the event loop would cancel the lifespan, and uvicorn log a traceback.
            await self.lifespan.shutdown()


def run_http(config: Config) -> int:
    """Listen until a signal comes. Return the exit code.

    Raises:
        ConfigError: the address cannot be listened on, or the tokens cannot be read.
    """
    configure(config.log)
    raise_limit()
    tokens = None if config.server.tokens is None else StaticTokens.read(config.server.tokens)
    anyio.run(_serve_http, config, tokens, backend_options={"use_uvloop": _has_uvloop()})
    return 0


async def _serve_http(config: Config, tokens: StaticTokens | None) -> None:
    """Serve until a signal comes. Signals are handled before the port opens, since its users may send one at once."""
    async with anyio.create_task_group() as tasks:
        shutdown = Shutdown()
        await tasks.start(_watch_signals, shutdown)
        tasks.start_soon(_cancel_start, shutdown, tasks.cancel_scope)
        with _listen(config) as listener:
            await _serve_on(listener, config, tokens, shutdown)
        tasks.cancel_scope.cancel()


async def _cancel_start(shutdown: Shutdown, start: anyio.CancelScope) -> None:
    """Cancel the start when a signal comes before the process serves."""
    await shutdown.begin_event.wait()
    if not shutdown.is_serving:
        start.cancel()


async def _serve_on(
    listener: socket.socket, config: Config, tokens: StaticTokens | None, shutdown: Shutdown
) -> None:
    url = _url(listener)
    alone = config.server.loopback and config.server.tokens is None
    address, port = f"{url}, pid {os.getpid()}", listener.getsockname()[1]
    async with open_gateway(config, address=address, alone=alone, port=port) as gateway:
        mcp_server = StateholdServer(gateway, version=version("statehold"))
        application = HttpApplication(gateway, mcp_server, tokens)
        settings = uvicorn.Config(
            application.asgi,
            http=_http_protocol(config.http),
            backlog=ACCEPTS,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            interface="asgi3",
            # The address of a client matters only to the backoff of wrong tokens.
            proxy_headers=tokens is not None,
            timeout_keep_alive=75,
            # Running calls have ended by then; an open stream must not keep the process alive.
            timeout_graceful_shutdown=1,
        )
        server = _Server(settings)
        shutdown.is_serving = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_http, gateway, mcp_server, application.streams, server, shutdown)
            tasks.start_soon(_force_exit, server, shutdown)
            sys.stderr.write(f"Statehold listens on {url}/mcp\n")
            sys.stderr.flush()
            await server.serve([listener])
            tasks.cancel_scope.cancel()


async def _end_http(
    gateway: Gateway,
    mcp_server: StateholdServer,
    streams: OpenStreams,
    server: uvicorn.Server,
    shutdown: Shutdown,
) -> None:
    await shutdown.begin_event.wait()
    await gateway.registry.drain()
    # The answers of the last calls are still passing through the transports.
    await anyio.sleep(ANSWER_SECONDS)
    mcp_server.stop_listening()
    streams.end()
    server.should_exit = True


async def _force_exit(server: uvicorn.Server, shutdown: Shutdown) -> None:
    await shutdown.force_event.wait()
    server.force_exit = server.should_exit = True


@contextlib.contextmanager
def _listen(config: Config) -> Generator[socket.socket]:
    host, port = config.server.host.strip("[]"), config.server.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        holder = holder_of(host, port) if error.errno == errno.EADDRINUSE else None
        raise ConfigError(
            f"cannot listen on {host} port {port}: {holder or error.strerror or error}; choose another with "
            "--port (0: any free one) or --host"
        ) from None
    with listener:
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _http_protocol(settings: HttpSettings) -> type[asyncio.Protocol] | Literal["auto"]:
    try:
        from .http.bounded_protocol import bounded_protocol
    except ImportError:
        # Without httptools, uvicorn uses h11, which limits heads but not connections.
        return "auto"
    total = allowed_connections(settings.connections, reserved_files=settings.reserved_files)
    return bounded_protocol(Clients(settings, total=total))


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return False
    return True


__all__ = ["open_gateway", "run_http", "run_stdio"]
