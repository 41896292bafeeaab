"""Connections to other nodes, kept for the next request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext

import anyio

from .dialer import Dialer
from .messages import MessageConnection

IDLE_SECONDS = 60.0
"""Seconds after which a connection without a request is closed."""
DEATH_SECONDS = 1.0
"""Seconds between two looks for dead nodes that have connections."""
CONNECTIONS = 256
"""Requests at once to one node; further ones wait."""


class _Node:
    """The connections to one node."""

    def __init__(self) -> None:
        self.idle: list[tuple[MessageConnection, float]] = []
        self.used: set[MessageConnection] = set()
        self.slots = anyio.Semaphore(CONNECTIONS)


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
    async def connection(
        self, node: str, *, is_stream: bool = False
    ) -> AsyncGenerator[MessageConnection]:
        """Use a connection for one request. It is kept when the block ends, and closed when the block fails.

        `is_stream`: the request may last as long as its client, and so it takes no place from others.

        Raises:
            NodeUnreachable: the node takes no connections.
        """
        connections = self._nodes[node]
        async with nullcontext() if is_stream else connections.slots:
            connection = self._take_idle(connections) or await self._dialer.connect(node)
            connections.used.add(connection)
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            finally:
                connections.used.discard(connection)
            connections.idle.append((connection, anyio.current_time()))

    def _take_idle(self, connections: _Node) -> MessageConnection | None:
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
                if not kept and not connections.used and connections.slots.value == CONNECTIONS:
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


__all__ = ["Peers"]
