"""The requests between the nodes of a data folder, and between those of a cluster: how a process takes and sends them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import anyio

from ...sessions.concurrency import unwrap_group
from ...sessions.errors import StoreUnavailable
from ...sessions.node import Node
from ..config.model import Config, ConfigError
from ..forwarding.address import NodeSockets
from ..forwarding.assertion import Assertions
from ..forwarding.dialer import ClusterDialer, Dialer, UnixDialer
from ..forwarding.listener import AcceptPeers, ForwardingListener
from ..forwarding.peer_port import PeerPort, open_peer_port
from ..forwarding.peers import Peers
from ..gateway.gateway import Gateway


@asynccontextmanager
async def peer_port(gateway: Gateway) -> AsyncGenerator[PeerPort | None]:
    """Listen on the peer port while the block runs, and have the node's row name it; None without a cluster.

    Nodes that see the row may connect at once: they wait until the port is served.

    Raises:
        ConfigError: the address cannot be listened on, or the one to advertise is not known.
    """
    cluster = gateway.config.cluster
    if not cluster.enabled:
        yield None
        return
    try:
        port = await open_peer_port(
            cluster.listen, cluster.advertise, _database_host(gateway.config)
        )
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"cluster.listen: {cluster.listen} cannot be used: {reason}") from None
    except ValueError as error:
        raise ConfigError(f"cluster.listen, cluster.advertise: {error}") from None
    with closing(port):
        gateway.node.advertise(port.address)
        yield port


def _database_host(config: Config) -> str:
    from sqlalchemy import make_url

    from ..gateway.stores import url_of

    return make_url(url_of(config) or "").host or ""


@asynccontextmanager
async def forwarding(
    gateway: Gateway, folder: Path | None, port: PeerPort | None
) -> AsyncGenerator[None]:
    """Let this node and the others answer for each other while the block runs.

    Raises:
        OSError: the folder of the sockets is not private to this user.
    """
    if folder is None:
        yield
        return
    node, config, sockets = gateway.node, gateway.config, NodeSockets(folder)
    unix = UnixDialer(sockets)
    dialer: Dialer = unix
    accept: AcceptPeers | None = None
    if port is not None:
        assertions = _assertions(config, node)
        dialer = ClusterDialer(unix, assertions, node.find, config.cluster.admits)
        accept = partial(port.accept, assertions)
    peers = gateway.peers = Peers(dialer)
    node.is_connected, node.forwards = peers.is_connected, True
    listener = ForwardingListener(
        gateway.registry, lambda: gateway.owner_server, lambda: gateway.owner_http
    )
    try:
        async with listener.run(sockets, node.id, accept), anyio.create_task_group() as tasks:
            tasks.start_soon(peers.close_idle)
            if accept is not None:
                tasks.start_soon(peers.close_dead, partial(_is_dead, node))
            yield
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The task groups have wrapped an error of the block.
        raise unwrap_group(group) from None
    finally:
        await peers.aclose()


def _assertions(config: Config, node: Node) -> Assertions:
    from ..gateway.stores import cluster_keys

    return Assertions(node.id, cluster_keys(config), node.database_now)


async def _is_dead(node: Node, other: str) -> bool:
    try:
        return await node.find(other) is None
    except StoreUnavailable:
        return False


__all__ = ["forwarding", "peer_port"]
