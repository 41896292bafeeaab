"""Serves MCP to one client over stdin and stdout of this process."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.metadata import version

import anyio

from ...access.config.types import ConfigError
from ...sessions.concurrency import unwrap_group
from ...sessions.errors import ServiceUnavailable, StoreUnavailable
from ..client_streams import ClientStreams
from ..cluster.owner import Owner
from ..config.model import Config
from ..exit_codes import FAILURE, USAGE
from ..gateway.gateway import Gateway
from ..printing import complain
from ..protocol.server import StateholdServer
from ..shutdown import Shutdown, cancel_start, watch_signals
from ..stdio import stdio_streams
from .gateway import create_gateway, has_uvloop, hold_open
from .logs import configure
from .open_files import raise_limit

OPEN_SECONDS = 0.5
"""Seconds that the sessions wait for the first list of the tools before they are opened."""


def run_stdio(config: Config) -> int:
    """Serve one client over stdin and stdout until it leaves or a signal comes. Return the exit code.

    If the data folder or the database cannot be used, the requests of the client are answered with the reason.
    """
    configure(config.log, config.secrets)
    raise_limit()
    return anyio.run(_serve, config, backend_options={"use_uvloop": has_uvloop()})


async def _serve(config: Config) -> int:
    """Serve the client in a task, and open the sessions beside it: the list of the tools does not wait for them."""
    gateway = await create_gateway(
        config, address=f"stdio, pid {os.getpid()}", has_local_callers=True
    )
    mcp_server = StateholdServer(
        gateway, version=version("statehold"), pinned_name=config.server.session
    )
    owner = Owner(gateway.registry, mcp_server.forwarded_requests)
    shutdown, served = Shutdown(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_serve_client, gateway, mcp_server, shutdown, served)
        with anyio.CancelScope() as start:
            tasks.start_soon(cancel_start, shutdown, start)
            await gateway.opening.wait_requested()
            try:
                async with hold_open(gateway, owner, on_fenced=shutdown.begin_fenced):
                    shutdown.is_serving = True
                    await served.wait()
            except Exception as error:
                _fail(gateway, shutdown, error)
        await served.wait()
        tasks.cancel_scope.cancel()
    return shutdown.exit_code


def _fail(gateway: Gateway, shutdown: Shutdown, error: Exception) -> None:
    """Answer the client with an error that kept the sessions from being opened: its log may be shown to nobody.

    Any other error is raised again.
    """
    reason = unwrap_group(error)
    if gateway.opening.is_complete or not isinstance(reason, ConfigError | StoreUnavailable):
        raise error
    shutdown.exit_code = complain(
        str(reason), USAGE if isinstance(reason, ConfigError) else FAILURE
    )
    gateway.opening.fail(str(reason))


async def _serve_client(
    gateway: Gateway, mcp_server: StateholdServer, shutdown: Shutdown, served: anyio.Event
) -> None:
    async with stdio_streams() as streams, anyio.create_task_group() as tasks:
        await tasks.start(watch_signals, shutdown)
        tasks.start_soon(_request_opening, gateway, streams)
        tasks.start_soon(_watch_client, gateway, mcp_server, streams, shutdown)
        tasks.start_soon(_end, gateway, mcp_server, streams, shutdown)
        await streams.serve(mcp_server, {})
        tasks.cancel_scope.cancel()
    served.set()


async def _request_opening(gateway: Gateway, streams: ClientStreams) -> None:
    """Have the sessions opened when the client has its list, or requests none for a while."""
    with anyio.move_on_after(OPEN_SECONDS):
        await streams.tools_listed.wait()
    gateway.opening.request()


async def _watch_client(
    gateway: Gateway, mcp_server: StateholdServer, streams: ClientStreams, shutdown: Shutdown
) -> None:
    """End the process when the client has closed its side and its requests are answered, or the grace time is over."""
    await streams.client_closed.wait()
    # A store that cannot be opened is reported even to a client that requested nothing.
    with suppress(ServiceUnavailable):
        await gateway.opening.wait()
    mcp_server.stop_listening()
    mcp_server.open_calls.abandon()
    await streams.wait_answered(gateway.config.timeouts.close_grace)
    shutdown.begin()


async def _end(
    gateway: Gateway, mcp_server: StateholdServer, streams: ClientStreams, shutdown: Shutdown
) -> None:
    await shutdown.begin_event.wait()
    if gateway.opening.is_complete:
        await gateway.drain()
    mcp_server.stop_listening()
    await streams.end()
