"""The nodes of a data folder, and those of a cluster: how a process takes and sends requests for the sessions of others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, nullcontext
from functools import partial
from pathlib import Path

import anyio

from ...access.config.types import ConfigError
from ...sessions.concurrency import unwrap_group
from ...sessions.errors import StoreUnavailable
from ...sessions.node import NODES, Node
from ..cluster.assertion import SignedAssertions
from ..cluster.node_dialer import ClusterDialer, Dialer, UnixDialer
from ..cluster.node_pool import Peers
from ..cluster.node_server import ANSWER_SECONDS, NodeServer, answer_nodes
from ..cluster.owner import Owner
from ..cluster.peer_port import Certificates, PeerPort, open_peer_port
from ..config.model import Config
from ..gateway.gateway import Gateway
from ..sockets.local_socket import LocalSocket


@asynccontextmanager
async def peer_port(gateway: Gateway) -> AsyncGenerator[PeerPort | None]:
    """Listen on the peer port while the block runs, and have the node's row name it; None without a cluster.

    Nodes that see the row may connect at once: they wait until the port is served.

    Raises:
        ConfigError: the address cannot be listened on, the one to advertise is not known, or a certificate cannot be used.
    """
    cluster = gateway.config.cluster
    if not cluster.enabled:
        yield None
        return
    certificates = Certificates.read(cluster)
    try:
        port = await open_peer_port(
            cluster.listen,
            cluster.advertise,
            _database_host(gateway.config),
            certificates,
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
async def join_nodes(
    gateway: Gateway,
    owner: Owner | None,
    local: LocalSocket,
    folder: Path | None,
    port: PeerPort | None,
) -> AsyncGenerator[None]:
    """Let this node and the others answer for each other while the block runs. Without an owner, only the others do.

    `folder` is the data folder.
    """
    if folder is None:
        yield
        return
    node, config = gateway.node, gateway.config
    unix = UnixDialer(folder / NODES)
    dialer: Dialer = unix
    server: NodeServer | None = None
    if port is not None:
        assertions = _assertions(config, node)
        certificates = port.certificates
        dialer = ClusterDialer(
            unix,
            assertions,
            node.find,
            config.cluster.admits,
            None if certificates is None else certificates.client,
        )
        server = None if owner is None else NodeServer(owner.application(assertions))
    peers = gateway.peers = Peers(dialer)
    node.attach(peers)
    try:
        async with (
            nullcontext() if owner is None else answer_nodes(owner, local),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(peers.close_idle)
            if port is not None and server is not None:
                tasks.start_soon(port.accept, server, tasks)
                tasks.start_soon(peers.close_dead, partial(_is_dead, node))
            try:
                yield
            finally:
                if owner is not None and server is not None:
                    await owner.wait_idle(ANSWER_SECONDS)
                    server.close()
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The task groups have wrapped an error of the block.
        raise unwrap_group(group) from None
    finally:
        await peers.aclose()


def _assertions(config: Config, node: Node) -> SignedAssertions:
    from ..gateway.stores import cluster_keys

    return SignedAssertions(node.id, cluster_keys(config), node.database_now)


async def _is_dead(node: Node, other: str) -> bool:
    try:
        return await node.find(other) is None
    except StoreUnavailable:
        return False
