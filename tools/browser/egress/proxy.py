"""The egress proxy: every browser context reaches the network through it, within the context's policy.

It speaks SOCKS5: each connection of a browser names its destination, and the bytes that follow are carried unread. A
redirect or another site is another connection, checked like the first. Names are resolved here, and a connection is opened
only to a checked address, so a name that changes its address gains nothing.

Each context has a port of its own, which identifies it: Chromium does not authenticate to a SOCKS proxy. If the system
reports the owner of a connection, only the user of this process is served.

A port outlives a process that is killed. Connections that wait there for the next process are refused: when the kill cuts a
request off, Chromium sends it again on a new connection, also one that is not idempotent, and the site may have it already.
"""

from __future__ import annotations

import logging
import select
import socket
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup

from ....sessions.clock import Clock, SystemClock
from .bandwidth import TrafficQuota, affordable
from .client_connection import ProxyClient
from .dialer import EgressDialer
from .network_policy import NetworkPolicy, UpstreamProxy
from .peer import SocketOwners
from .resolver import Resolver
from .session_access import (
    AccessStatistics,
    EgressAccess,
    HostsCallback,
    RefusalCallback,
    unreachable,
)
from .tunnel import GONE, close

logger = logging.getLogger(__name__)

_OUT_OF_FILES_SECONDS = 0.1


class FilteringProxy:
    """A proxy for a whole process. While entered, it listens on one loopback port for each EgressAccess.

    Leaving it closes every port and ends every connection at once. Enter and leave it in the same task.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        resolver: Resolver | None = None,
        connections: int | None = None,
        connections_per_access: int = 128,
        connect_seconds: float = 30.0,
        handshake_seconds: float = 30.0,
        own_ports: set[int] | None = None,
    ) -> None:
        """`connections`: the limit for all owners together; by default as many as the limit of open files leaves.

        `own_ports`: the ports that this process serves. No access reaches one of them. Those of the accesses are added.
        """
        self._clock = clock or SystemClock()
        self._own_ports = set[int]() if own_ports is None else own_ports
        self._dialer = EgressDialer(
            resolver or Resolver(self._clock), seconds=connect_seconds, own_ports=self._own_ports
        )
        self._quota = TrafficQuota(affordable() if connections is None else connections)
        self._per_access = connections_per_access
        self._handshake_seconds = handshake_seconds
        self._accesses: set[EgressAccess] = set()
        self._tasks: TaskGroup | None = None
        self._peers: SocketOwners | None = None
        self._exit = AsyncExitStack()

    @property
    def connections(self) -> int:
        """The number of open connections from browsers."""
        return self._quota.open

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._peers = SocketOwners()
            stack.callback(self._peers.close)
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._tasks.cancel_scope.cancel)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tasks = None
        for access in list(self._accesses):
            access.free()
        # The task group is not passed the error of its user, so that it does not wrap it.
        await self._exit.aclose()

    async def admit(
        self,
        policy: NetworkPolicy,
        *,
        on_refused: RefusalCallback | None = None,
        on_failed: RefusalCallback | None = None,
        upstream: UpstreamProxy | None = None,
        owner: str = "",
        listening: socket.socket | None = None,
        hosts: HostsCallback | None = None,
    ) -> EgressAccess:
        """Give a context access to the network, by a port that is its own until the access is freed.

        `on_refused(host, reason)` is called for each connection that the policy refuses, `on_failed` for each whose site
        cannot be reached: a browser does not report why a proxy failed. Connections are divided among owners. `listening` is
        the socket of the context's port if it has one already; the access closes it, and refuses the connections that wait
        there. `hosts` returns the only hosts that the caller may reach, besides what the policy says.

        Raises:
            OSError: There is no port left to listen on, or no file descriptor.
            RuntimeError: The proxy is not entered.
        """
        self._require_tasks()
        listener = await _listen(listening)
        try:
            # The proxy may have been closed meanwhile.
            tasks = self._require_tasks()
        except RuntimeError:
            await listener.aclose()
            raise
        access = EgressAccess(
            listener.extra(SocketAttribute.local_port),
            policy,
            descriptor=listener.extra(SocketAttribute.raw_socket).fileno(),
            owner=owner,
            clock=self._clock,
            connections=self._per_access,
            upstream=upstream,
            on_refused=on_refused,
            on_failed=on_failed,
            on_freed=self._accesses.discard,
            hosts=hosts,
        )
        self._accesses.add(access)
        self._own_ports.add(access.port)
        tasks.start_soon(self._accept, listener, access, tasks, listening is not None)
        return access

    async def _accept(
        self, listener: SocketListener, access: EgressAccess, tasks: TaskGroup, is_adopted: bool
    ) -> None:
        async with listener:
            with access.listening:
                has_waited = is_adopted
                while True:
                    has_waited = has_waited and _has_connection(listener)
                    try:
                        stream = await listener.accept()
                    except OSError:
                        # No file descriptors left, or the browser gave up: go on listening.
                        await anyio.sleep(_OUT_OF_FILES_SECONDS)
                        continue
                    is_full = self._quota.is_full(access.owner)
                    if is_full:
                        access.note(unreachable("a site", "too many connections are open"))
                    if is_full or not self._is_ours(stream):
                        await close(stream)
                        continue
                    self._quota.take(access.owner)
                    tasks.start_soon(self._serve, stream, access, has_waited)
        self._own_ports.discard(access.port)

    async def _serve(self, stream: SocketStream, access: EgressAccess, has_waited: bool) -> None:
        client = ProxyClient(
            stream, access, self._dialer, self._clock, self._handshake_seconds, has_waited
        )
        try:
            await client.serve()
        except Exception:
            logger.exception("a connection of the filtering proxy failed")
        finally:
            self._quota.release(access.owner)

    def _require_tasks(self) -> TaskGroup:
        if self._tasks is None:
            raise RuntimeError("the proxy is not listening")
        return self._tasks

    def _is_ours(self, stream: SocketStream) -> bool:
        assert self._peers is not None
        try:
            return self._peers.are_ours(stream.extra(SocketAttribute.raw_socket))
        except GONE:
            return False


def _has_connection(listener: SocketListener) -> bool:
    """Return whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(listener.extra(SocketAttribute.raw_socket).fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def _listen(listening: socket.socket | None) -> SocketListener:
    if listening is not None:
        return await SocketListener.from_socket(listening)
    listeners = await anyio.create_tcp_listener(local_host="127.0.0.1")
    (listener,) = listeners.listeners
    assert isinstance(listener, SocketListener)
    return listener


__all__ = ["FilteringProxy", "EgressAccess", "AccessStatistics", "UpstreamProxy"]
