"""Serves MCP over HTTP."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version

import anyio
import uvicorn

from ...access.claims import VerifiedCaller
from ...access.verifier import verifier_of
from ...tools.browser.egress.resolver import Resolver
from ...tools.outbound import OutboundClient, allows_loopback
from ..cluster.owner import Owner
from ..config.model import Config
from ..events.deliverer import Deliverer
from ..events.requests import EventRequests
from ..events.webhooks import Webhooks
from ..exit_codes import OK
from ..gateway.gateway import Gateway
from ..http.app import HttpApplication
from ..http.clients import Clients
from ..http.listener import listen, listen_together, url_of
from ..http.open_streams import OpenStreams
from ..protocol.server import StateholdServer
from ..shared.clients import LocalClients
from ..shared.request import build_id
from ..shutdown import Shutdown, cancel_start, watch_signals
from ..sockets.systemd import notify
from .access_files import AccessFiles, watch_streams
from .gateway import CONSOLE_VERB, CreateConsole, create_gateway, has_uvloop, hold_open
from .http_server import HttpServer, clients_of, http_protocol, proxies_of, server_config
from .logs import configure
from .metrics_port import metrics_port
from .open_files import raise_limit
from .workers import Worker, Workers

logger = logging.getLogger("statehold.server")

KEEPER_SECONDS = 60.0
"""The default of `keeper.linger_seconds`."""
ANSWER_SECONDS = 0.1
"""Seconds between the end of the last call and the end of the HTTP streams, for the answers to be sent."""


def run_http(config: Config, settings: Mapping[str, str], create_console: CreateConsole) -> int:
    """Listen until a signal or `statehold stop` comes. Return the exit code.

    `settings` are those that the server was started with, for the commands and clients of this machine. `create_console`
    creates the console of the process.

    Raises:
        ConfigError: the address cannot be listened on, or the tokens cannot be read.
    """
    configure(config.log, config.secrets)
    raise_limit()
    files = AccessFiles.read(config)
    # Reads all files of the code: before the event loop runs, and once for all workers.
    build_id()
    if config.server.workers == 1:
        return _run(config, files, settings, create_console)
    with listen_together(config) as listeners:
        url = url_of(listeners[0], config.server.scheme)
        workers = Workers(listeners, partial(_report_url, url))
        outcome = workers.run()
        return (
            outcome
            if isinstance(outcome, int)
            else _run(config, files, settings, create_console, outcome)
        )


def _run(
    config: Config,
    files: AccessFiles,
    settings: Mapping[str, str],
    create_console: CreateConsole,
    worker: Worker | None = None,
) -> int:
    options = {"use_uvloop": has_uvloop()}
    return anyio.run(
        _serve_http, config, files, settings, create_console, worker, backend_options=options
    )


async def _serve_http(
    config: Config,
    files: AccessFiles,
    settings: Mapping[str, str],
    create_console: CreateConsole,
    worker: Worker | None,
) -> int:
    """Serve until a signal comes, and return the exit code.

    Signals are handled before the port opens, since its users may send one at once.
    """
    shutdown = Shutdown()
    async with anyio.create_task_group() as tasks:
        await tasks.start(watch_signals, shutdown)
        tasks.start_soon(cancel_start, shutdown, tasks.cancel_scope)
        if worker is None:
            with listen(config) as (listener, is_held):
                url = url_of(listener, config.server.scheme)
                report = partial(_report_listening, url)
                await _serve_on(
                    listener,
                    config,
                    files,
                    settings,
                    create_console,
                    shutdown,
                    report,
                    is_held=is_held,
                )
        else:
            tasks.start_soon(_stop_with_parent, worker, shutdown)
            report = worker.report_serving
            await _serve_on(
                worker.listener, config, files, settings, create_console, shutdown, report, worker
            )
        tasks.cancel_scope.cancel()
    return shutdown.exit_code


async def _stop_with_parent(worker: Worker, shutdown: Shutdown) -> None:
    await worker.wait_stopped()
    shutdown.begin()


def _report_listening(url: str) -> None:
    _report_url(url)
    notify("READY=1")


def _report_url(url: str) -> None:
    sys.stderr.write(f"Statehold listens on {url}/mcp\n")
    sys.stderr.flush()


async def _serve_on(
    listener: socket.socket,
    config: Config,
    files: AccessFiles,
    settings: Mapping[str, str],
    create_console: CreateConsole,
    shutdown: Shutdown,
    report_serving: Callable[[], object],
    worker: Worker | None = None,
    *,
    is_held: bool = False,
) -> None:
    """Serve on a listening socket. `is_held`: systemd holds it open too, and starts the next process on it."""
    url = url_of(listener, config.server.scheme)
    has_local_callers = config.server.loopback and not config.needs_token
    address, port = f"{url}, pid {os.getpid()}", listener.getsockname()[1]
    gateway = await create_gateway(
        config,
        address=address,
        has_local_callers=has_local_callers,
        port=port,
        keeper_seconds=KEEPER_SECONDS,
    )
    mcp_server = StateholdServer(gateway, version=version("statehold"))
    outbound = OutboundClient(
        Resolver(gateway.registry.core.clock),
        allow_loopback=allows_loopback(config.server.public_url),
    )
    webhooks = Webhooks(outbound, gateway.registry.core.clock)
    event_requests = EventRequests(gateway, webhooks)
    event_requests.register(mcp_server)
    facade = None
    if config.auth.facade.enabled:
        # Imported here: few servers are an authorization server.
        from ...access.facade.app import Facade

        facade = Facade(config.auth, config.server.public_url or "", gateway.store, gateway.audit)
    note, revoked = partial(_record_caller, gateway), gateway.registry.core.revoked
    verifier = verifier_of(files.tokens, config.auth, facade, note, revoked)
    console = create_console(gateway, verifier)
    more_routes = [*console.routes(), *(facade.routes() if facade is not None else ())]
    application = HttpApplication(gateway, mcp_server, verifier, more_routes)
    owner = Owner(gateway.registry, mcp_server.forwarded_requests, application)
    port = console.port(listener)
    local_clients = LocalClients(
        gateway,
        mcp_server,
        settings,
        kind="serve",
        build=build_id(),
        stop=shutdown.begin if worker is None else worker.stop_all,
        is_ending=shutdown.begin_event.is_set,
        supervisor=None if worker is None else worker.parent_pid,
    )
    verbs = {**local_clients.verbs(), CONSOLE_VERB: port.handler}
    metrics = metrics_port(gateway, 0 if worker is None else worker.number)
    async with hold_open(gateway, owner, verbs, on_fenced=shutdown.begin_fenced), port, metrics:
        if config.needs_token:
            gateway.registry.spawn(Deliverer(gateway.registry, webhooks).run)
            gateway.registry.spawn(event_requests.upstream_events.run)
        clients, proxies = clients_of(config.http), proxies_of(config.server)
        certificate = files.certificate
        protocol = http_protocol(clients, proxies, is_tls=certificate is not None)
        server = HttpServer(server_config(application.asgi, protocol, keep_alive_seconds=75))
        shutdown.is_serving = True
        async with anyio.create_task_group() as tasks:
            end = partial(_end_http, gateway, mcp_server, application.streams, clients, server)
            tasks.start_soon(end, local_clients, shutdown, is_held)
            tasks.start_soon(_force_exit, server, shutdown)
            tasks.start_soon(files.watch, application.streams, verifier, gateway.registry.policies)
            if verifier is not None and config.auth.enabled:
                tasks.start_soon(watch_streams, application.streams, verifier)
                tasks.start_soon(verifier.preload_keys)
            tasks.start_soon(server.serve, [listener] if certificate is None else [])
            await server.accepts.wait()
            if certificate is not None:
                from ..http.tls_listener import TlsListener

                server.tls_listener = TlsListener(
                    listener, certificate, clients, proxies, server.create_protocol
                )
                tasks.start_soon(server.tls_listener.serve, tasks)
            if not shutdown.begin_event.is_set():
                report_serving()
            await server.ended.wait()
            tasks.cancel_scope.cancel()


def _record_caller(gateway: Gateway, caller: VerifiedCaller) -> None:
    gateway.registry.policies.record_caller(caller.principal, caller.membership)


async def _end_http(
    gateway: Gateway,
    mcp_server: StateholdServer,
    streams: OpenStreams,
    clients: Clients,
    server: HttpServer,
    local_clients: LocalClients,
    shutdown: Shutdown,
    is_held: bool,
) -> None:
    await shutdown.begin_event.wait()
    notify("STOPPING=1")
    clients.is_draining = True
    if is_held and not gateway.node.up_nodes():
        # The requests of later connections wait in the socket for the next process.
        server.stop_accepting()
        clients.close_idle()
    async with anyio.create_task_group() as tasks:
        if gateway.node.up_nodes() and shutdown.exit_code == OK:
            # Meanwhile the proxies notice it by /readyz, and this node passes on the requests on its connections.
            tasks.start_soon(anyio.sleep, gateway.config.timeouts.close_grace)
        await gateway.drain()
    await gateway.wait_answered()
    # One that does not read its last answer must not keep the process alive.
    with anyio.move_on_after(gateway.config.timeouts.close_grace):
        await local_clients.end()
    # The last answers close their connections, and some clients send one more request when they get theirs.
    await anyio.sleep(ANSWER_SECONDS)
    server.stop_accepting()
    # The answers of the last calls are still passing through the transports, and a new connection may bring its request.
    await anyio.sleep(ANSWER_SECONDS)
    mcp_server.stop_listening()
    streams.end()
    server.should_exit = True


async def _force_exit(server: uvicorn.Server, shutdown: Shutdown) -> None:
    await shutdown.force_event.wait()
    server.force_exit = server.should_exit = True
