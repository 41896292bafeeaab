"""The gateway of a process: everything that it needs to serve, built and opened in order."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import anyio
from starlette.routing import BaseRoute

from ...access.verifier import Verifier
from ...sessions.clock import SystemClock
from ...sessions.cluster.heartbeat import Heartbeat
from ...sessions.node import NODES, Node, new_node_id
from ...sessions.store.base import DeferredStore
from ...tools.processes.keeper import KeeperClient
from ...tools.processes.keeper_command import KeeperUnreachable
from ...tools.processes.ledger import Ledger
from ..cluster.owner import Owner
from ..config.model import Config
from ..gateway.gateway import Gateway
from ..gateway.services import AnyService, sessions_of
from ..sockets.local_socket import Handler, local_socket
from .cluster_node import join_nodes, peer_port
from .tracing import span_export

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

logger = logging.getLogger("statehold.server")


@asynccontextmanager
async def open_gateway(
    config: Config,
    *,
    address: str,
    has_local_callers: bool = False,
    port: int | None = None,
    keeper_seconds: float = 0.0,
) -> AsyncGenerator[Gateway]:
    """Build the gateway of a process and open it, without a server that answers other nodes."""
    gateway = await create_gateway(
        config,
        address=address,
        has_local_callers=has_local_callers,
        port=port,
        keeper_seconds=keeper_seconds,
    )
    async with hold_open(gateway, None):
        yield gateway


async def create_gateway(
    config: Config,
    *,
    address: str,
    has_local_callers: bool = False,
    port: int | None = None,
    keeper_seconds: float = 0.0,
) -> Gateway:
    """Build a gateway that lists the tools known to it. Nothing is opened or started yet.

    `has_local_callers`: the only caller is the user who started the process. `port`: the port on which it listens for
    callers, which no web page may reach. `keeper_seconds`: the default of `keeper.linger_seconds`.
    """
    for note in config.notes:
        logger.info("%s", note)
    clock = SystemClock()
    folder = None if config.ephemeral else config.data
    store = cast("SQLStore", DeferredStore(partial(_build_store, config)))
    node_id = new_node_id()
    ledger = Ledger(folder, node=node_id, keeper=_keeper_of(config, keeper_seconds))
    node = Node(
        store,
        folder,
        node_id=node_id,
        address=address,
        clock=clock.now,
        lease_seconds=config.cluster.lease_seconds if config.cluster.enabled else 0.0,
        capacity=config.node_capacity,
        version=version("statehold"),
        bury=ledger.sweep,
    )
    gateway = Gateway(
        config, store, node, ledger, has_local_callers=has_local_callers, port=port, clock=clock
    )
    await gateway.recall()
    return gateway


def _keeper_of(config: Config, default_seconds: float) -> KeeperClient | None:
    """Return the connection to the keeper, None when child processes end with this one."""
    seconds = config.keeper.linger_seconds
    linger = default_seconds if seconds is None or not default_seconds else seconds
    return KeeperClient(config.data, linger) if linger and not config.ephemeral else None


def _build_store(config: Config) -> SQLStore:
    # Imported here: the database libraries take an eighth of the start of a process, and its tool list does not need them.
    from ..gateway.stores import store_of

    return store_of(config, replace_damaged=True)


@asynccontextmanager
async def hold_open(
    gateway: Gateway,
    owner: Owner | None,
    verbs: Mapping[str, Handler] | None = None,
    *,
    on_fenced: Callable[[], None] | None = None,
) -> AsyncGenerator[None]:
    """Open the store, the services and the sessions of a gateway, and close them in reverse order.

    Meanwhile `owner` answers other nodes, and the local socket of the process serves the commands of this user, and the
    connections of `verbs`. `on_fenced` is called when other nodes have declared this one dead: the process has to end.

    Child processes that an earlier process left behind are ended before any session is adopted, except those that the
    keeper holds: their sessions are resumed with them.

    Raises:
        ConfigError: `store.url` names no database, or `cluster.listen` no address of this machine.
        StoreUnavailable: the data folder or the database cannot be used.
    """
    from ..operate.handler import OperateVerb, OperatorHandler
    from ..operate.pictures import SessionPictures
    from ..operate.usage_samples import UsageSamples

    node, ledger = gateway.node, gateway.ledger
    folder = None if gateway.config.ephemeral else gateway.config.data
    operate = OperateVerb(
        OperatorHandler(
            gateway.registry,
            gateway.store,
            gateway.describe_services,
            data=folder,
            audit=gateway.audit,
            logins=gateway.browser_logins,
        )
    )
    spans = span_export(version("statehold"), node.id)
    async with spans, peer_port(gateway) as port, gateway.store, node:
        try:
            await ledger.sweep()
            async with (
                local_socket(None if folder is None else folder / NODES, node.id) as local,
                # Before the gateway, whose last answers it still sends.
                join_nodes(gateway, owner, local, folder, port),
                gateway,
                local.serve({"operate": operate, **_reading(gateway), **(verbs or {})}),
            ):
                if node.heartbeat is not None:
                    gateway.registry.spawn(_end_when_fenced, gateway, node.heartbeat, on_fenced)
                if ledger.keeper is not None and gateway.orphans_resumed is not None:
                    resumed = gateway.orphans_resumed
                    gateway.registry.spawn(_resume_orphans, gateway, ledger.keeper, resumed)
                else:
                    gateway.registry.spawn(gateway.registry.release_orphans)
                if gateway.config.notify:
                    await _start_notices(gateway)
                gateway.registry.spawn(UsageSamples(gateway.registry).run)
                watch = SessionPictures(gateway.registry).watch_for_node
                with (
                    nullcontext() if owner is None else owner.serve_operators(operate.answer, watch)
                ):
                    yield
        finally:
            with anyio.CancelScope(shield=True):
                await ledger.aclose()


def _reading(gateway: Gateway) -> dict[str, Handler]:
    """Return the handlers of commands that read: the process, and the sessions of its store if that is no memory."""
    from ..operate.activity import Activities, ActivityVerb
    from ..operate.nodes import ProcessVerb
    from ..operate.sessions import SessionDocuments, SessionsVerb

    store, config = gateway.store, gateway.config
    if config.ephemeral:
        return {"process": ProcessVerb(gateway.node)}
    closes_idle = config.on_idle == "close"
    documents = SessionDocuments(store, config.data, closes_idle=closes_idle)
    activities = Activities(gateway.registry, store, closes_idle=closes_idle)
    return {
        "process": ProcessVerb(gateway.node),
        "sessions": SessionsVerb(documents),
        "activity": ActivityVerb(activities),
    }


async def _start_notices(gateway: Gateway) -> None:
    # Imported here: most processes send nothing.
    from ..events.deliverer import Deliverer
    from ..events.notices import Notices

    registry = gateway.registry
    notices = Notices(gateway.config.notify, registry, gateway.console_address)
    registry.spawn(notices.keep_subscribed, await notices.subscribe())
    registry.spawn(Deliverer(registry, notices).run)


async def _end_when_fenced(
    gateway: Gateway, heartbeat: Heartbeat, on_fenced: Callable[[], None] | None
) -> None:
    await heartbeat.fenced.wait()
    logger.critical("other nodes declared this one dead and take over its sessions: it ends")
    await gateway.registry.abandon()
    if on_fenced is not None:
        on_fenced()


async def _resume_orphans(gateway: Gateway, keeper: KeeperClient, resumed: anyio.Event) -> None:
    """Resume the sessions whose processes outlived the one that served them, before the keeper ends these."""
    try:
        status = await keeper.status()
        if status is not None:
            orphans = [child for child in status.children if not child.has_node]
            services = cast("dict[str, AnyService]", gateway.services)
            session_ids = {name for child in orphans for name in sessions_of(child, services)}
            since = gateway.registry.core.clock.now() - status.linger_seconds
            await gateway.registry.resume_orphans(sorted(session_ids), since=since)
    except KeeperUnreachable as error:
        logger.warning("the keeper was not asked for child processes: %s", error)
    finally:
        resumed.set()
    await gateway.registry.release_orphans()


def has_uvloop() -> bool:
    """Whether the event loop can be uvloop's."""
    try:
        import uvloop  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return False
    return True


CONSOLE_VERB = "console"
"""The verb of the local socket by which a command asks for the address of the console."""


class ConsoleAddressPort(AbstractAsyncContextManager[object, bool | None], Protocol):
    """The address of a console. `async with` bounds the life of a port that it opens."""

    @property
    def handler(self) -> Handler:
        """The handler of the verb `console`."""
        ...


class ProcessConsole(Protocol):
    """The console over the gateway of a process. It lives as long as the process."""

    def routes(self) -> list[BaseRoute]:
        """Return the routes of its page and its API, for an application that checks Host and Origin."""
        ...

    def is_in_use(self) -> bool:
        """Whether a person has its page open."""
        ...

    def port(self, listener: socket.socket | None = None) -> ConsoleAddressPort:
        """Return its address: at `listener`, which serves the routes, or at a port that it opens when it is asked for."""
        ...


CreateConsole: TypeAlias = Callable[[Gateway, Verifier | None], ProcessConsole]
