"""Connections to other nodes, kept for the next request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import anyio

from ...sessions.errors import SessionLimit
from ...sessions.live.budget import Budget
from .assertion import BEGIN_SECONDS, Assertion, NodeRequest
from .node_connection import ConnectionEnded, NodeConnection
from .node_dialer import Dialer, NodeUnreachable

IDLE_SECONDS = 60.0
"""Seconds after which a connection without a request is closed."""
DEATH_SECONDS = 1.0
"""Seconds between two looks for dead nodes that have connections."""
MAX_CONNECTIONS = 256
"""Requests at once to one node; further ones wait. Each principal has a share of them."""
MAX_WAITING = 10_000
"""Requests that wait for one node; each principal has a share of them, too."""
MARGIN_SECONDS = 0.5
"""Seconds after BEGIN_SECONDS in which the owner's first bytes have to arrive."""


class _Node:
    """The connections to one node."""

    def __init__(self) -> None:
        self.idle: list[tuple[NodeConnection, float]] = []
        self.used: set[NodeConnection] = set()
        self.places = Budget(
            MAX_CONNECTIONS, queue=MAX_WAITING, queue_seconds=math.inf, shared=True
        )


class Peers:
    """The connections of this process to other nodes. A connection carries one request at a time.

    Any task may use it. aclose() ends every connection and may be called twice.
    """

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._nodes: defaultdict[str, _Node] = defaultdict(_Node)
        self._requests = 0
        self._answered = anyio.Event()

    @contextmanager
    def count_request(self) -> Generator[None]:
        """Have wait_answered() wait for a request until the block ends."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                self._answered.set()
                self._answered = anyio.Event()

    async def wait_answered(self, within: float) -> None:
        """Wait until every counted request is answered, or `within` seconds have passed."""
        with anyio.move_on_after(within):
            while self._requests:
                await self._answered.wait()

    def is_connected(self, node: str) -> bool:
        """Whether there is an open connection to a node, which proves that it lives."""
        connections = self._nodes.get(node)
        return connections is not None and (
            any(connection.is_open for connection, _ in connections.idle)
            or any(connection.is_open for connection in connections.used)
        )

    @asynccontextmanager
    async def exchange(
        self, node: str, request: NodeRequest, assertion: Assertion, *, takes_place: bool = True
    ) -> AsyncGenerator[NodeConnection]:
        """Send a request, and yield the connection when the other node has begun it, or has answered it.

        The connection is kept when the block ends after the response, and closed else, which cancels the request.
        `takes_place`: False for a request that may last as long as its client, or that another one waits for.

        Raises:
            NodeUnreachable: the other node has not begun the request, and will not.
        """
        connections = self._nodes[node]
        connection: NodeConnection | None = None
        async with AsyncExitStack() as stack:
            if takes_place:
                try:
                    await stack.enter_async_context(
                        connections.places.place(assertion.principal.key)
                    )
                except SessionLimit:
                    raise NodeUnreachable from None
            try:
                connection = await self._connection(node)
                connections.used.add(connection)
                await self._begin(node, connection, request, assertion)
                yield connection
            finally:
                if connection is not None:
                    connections.used.discard(connection)
                    self._keep(connections, connection)

    async def _begin(
        self, node: str, connection: NodeConnection, request: NodeRequest, assertion: Assertion
    ) -> None:
        try:
            # A process that serves no requests of others, such as a window, may have closed the connection by now.
            connection.send(request, assertion)
            await connection.wait_begun(BEGIN_SECONDS + MARGIN_SECONDS)
        except ConnectionEnded:
            raise NodeUnreachable from None
        except TimeoutError:
            self.drop(node)
            raise NodeUnreachable(is_silent=True) from None

    async def probe(self, node: str) -> None:
        """Have an open connection to a node.

        Raises:
            NodeUnreachable: the node takes no connections.
        """
        self._keep(self._nodes[node], await self._connection(node))

    async def _connection(self, node: str) -> NodeConnection:
        return self._take_idle(self._nodes[node]) or await self._dialer.connect(node)

    def _keep(self, connections: _Node, connection: NodeConnection) -> None:
        if connection.is_whole and connection.is_open:
            connections.idle.append((connection, anyio.current_time()))
        else:
            # At once, also where the other node reads no more: this cancels the request.
            connection.abort()

    def _take_idle(self, connections: _Node) -> NodeConnection | None:
        while connections.idle:
            connection, _ = connections.idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    def drop(self, node: str) -> None:
        """Close the unused connections to a node, which does not answer."""
        for connection, _ in self._nodes[node].idle:
            connection.close()
        self._nodes[node].idle.clear()

    async def close_idle(self) -> None:
        """Close connections that were not used for IDLE_SECONDS, until cancelled."""
        while True:
            await anyio.sleep(IDLE_SECONDS / 2)
            oldest = anyio.current_time() - IDLE_SECONDS
            for node, connections in list(self._nodes.items()):
                kept = [(c, since) for c, since in connections.idle if c.is_open and since > oldest]
                for connection, _ in connections.idle:
                    if all(connection is not c for c, _ in kept):
                        connection.close()
                connections.idle = kept
                places = connections.places.statistics()
                if not (kept or connections.used or places.used or places.waiting):
                    del self._nodes[node]

    async def close_dead(self, is_dead: Callable[[str], Awaitable[bool]]) -> None:
        """Close the connections to nodes that were declared dead, until cancelled.

        A stopped process and a lost machine keep their connections open, and requests on them would wait for ever.
        """
        while True:
            await anyio.sleep(DEATH_SECONDS)
            for node, connections in list(self._nodes.items()):
                if connections.used and await is_dead(node):
                    for connection in connections.used:
                        connection.abort()

    async def aclose(self) -> None:
        for node, connections in self._nodes.items():
            self.drop(node)
            for connection in connections.used:
                connection.close()
