"""Serves MCP to all stdio clients of one data folder over its local socket: the server of `statehold --shared`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

import anyio

from ...access.config.types import ConfigError
from ..cluster.owner import Owner
from ..config.model import Config
from ..protocol.server import StateholdServer
from ..shared.clients import LocalClients
from ..shared.folder import SERVER_LOCK, SharedFolder
from ..shared.request import build_id
from ..shared.server import SharedServer
from ..shutdown import Shutdown, cancel_start, watch_signals
from .gateway import CONSOLE_VERB, CreateConsole, create_gateway, has_uvloop, hold_open
from .logs import configure
from .open_files import raise_limit

KEEPER_SECONDS = 900.0
"""The default of `keeper.linger_seconds`."""
LOCK_SECONDS = 50.0
"""Seconds that the end of an earlier server may take."""


def run_shared(config: Config, settings: Mapping[str, str], create_console: CreateConsole) -> int:
    """Serve clients until a signal or `statehold stop` comes, or nobody needs the server. Return the exit code.

    `settings` are those that the server was started with; clients that ask for other ones are refused.
    `create_console` creates the console of the process.

    Raises:
        ConfigError: another server runs for the data folder, `ephemeral` is set, or `store.url` names no database.
        StoreUnavailable: the data folder or the database cannot be used.
    """
    if config.ephemeral:
        raise ConfigError("--shared keeps its sessions in the data folder; leave out ephemeral")
    configure(config.log, config.secrets)
    raise_limit()
    folder = SharedFolder(config.data)
    try:
        folder.create()
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}; choose another --data") from None
    with _hold_server_lock(folder):
        # Clients come and go; their folders may be removed while the server runs.
        os.chdir(folder.data)
        options = {"use_uvloop": has_uvloop()}
        return anyio.run(
            _serve, config, folder, settings, build_id(), create_console, backend_options=options
        )


@contextmanager
def _hold_server_lock(folder: SharedFolder) -> Generator[None]:
    """Be the one server of the folder during the block. Waits for the end of a server that has closed its socket."""
    waits = int(LOCK_SECONDS)
    for _ in range(waits):
        with folder.lock(SERVER_LOCK, within=1.0) as is_held:
            if is_held:
                yield
                return
        if folder.has_background_server():
            raise ConfigError(f"a server runs already for {folder.data}; see: statehold status")
    stop = shlex.join(["statehold", "stop", "--data", str(folder.data)])
    raise ConfigError(f"an earlier server of {folder.data} does not end; run: {stop}")


async def _serve(
    config: Config,
    folder: SharedFolder,
    settings: Mapping[str, str],
    build: str,
    create_console: CreateConsole,
) -> int:
    shutdown = Shutdown()
    async with anyio.create_task_group() as tasks:
        await tasks.start(watch_signals, shutdown)
        tasks.start_soon(cancel_start, shutdown, tasks.cancel_scope)
        gateway = await create_gateway(
            config,
            address=f"shared, pid {os.getpid()}",
            has_local_callers=True,
            keeper_seconds=KEEPER_SECONDS,
        )
        pin = gateway.config.server.session
        mcp_server = StateholdServer(gateway, version=version("statehold"), pinned_name=pin)
        owner = Owner(gateway.registry, mcp_server.forwarded_requests)
        clients = LocalClients(
            gateway,
            mcp_server,
            settings,
            kind="background",
            build=build,
            stop=shutdown.begin,
            is_ending=shutdown.begin_event.is_set,
            log=folder.log,
        )
        console = create_console(gateway, None)
        server = SharedServer(gateway, folder, clients, shutdown, console.is_in_use)
        port = console.port()
        verbs = {**clients.verbs(), CONSOLE_VERB: port.handler}
        async with hold_open(gateway, owner, verbs, on_fenced=shutdown.begin_fenced), port:
            shutdown.is_serving = True
            await server.serve(_report_listening)
        tasks.cancel_scope.cancel()
    return shutdown.exit_code


def _report_listening() -> None:
    """Write a line to stdout, for the client that waits for it. From then on descriptor 1 is the log."""
    sys.stdout.write("Statehold serves\n")
    sys.stdout.flush()
    os.dup2(2, 1)
