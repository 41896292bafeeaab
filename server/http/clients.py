"""The client connections of the HTTP server, with limits on their number and on their unread bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from ...access.refusals import RefusalLog
from ..config.ports import HttpSettings

UNREAD_SECONDS: Final = 0.05
"""Seconds after which the part of an answer that could not be sent counts as unread by its client."""


class ClientConnection(Protocol):
    """One connection: the interface of its HTTP protocol."""

    address: str
    written_bytes: int
    """Bytes of answers so far, including those that could not be sent yet."""
    body_bytes: int
    """Bytes received of the bodies of requests that are not answered yet."""

    def unsent_bytes(self) -> int:
        """Return the bytes that neither the transport nor the application could send yet."""
        ...

    def key(self) -> Hashable:
        """Return the caller, or the address before the caller is known."""
        ...

    def abort(self) -> None: ...

    def close(self) -> None: ...

    def refuse(self) -> None:
        """Answer that there are too many requests, if possible, and close the connection."""
        ...


RATIO: Final = 3
"""One caller may take this many times the bytes for bodies that it leaves free."""


@dataclass(slots=True)
class _Unread:
    """A client that does not read its answers as fast as they are sent."""

    key: Hashable
    sent_bytes: int
    """Bytes that had been sent when the client last read."""
    since: float
    """When the client last read."""


class Clients:
    """The connections of one server. Used in its event loop only; lives as long as the server.

    A connection is busy while a complete request is being answered, and otherwise idle, even if part of a request has
    arrived. Only idle connections are closed to make room.
    """

    def __init__(self, settings: HttpSettings | None = None, *, total: int | None = None) -> None:
        settings = settings or HttpSettings()
        self.settings = settings
        self.is_draining = False
        """Whether answers close their connections: a proxy would send later requests on them, to a server that has ended."""
        self._total = settings.connections if total is None else total
        self._per_address = settings.connections_per_address or max(1, self._total // 2)
        self._open: dict[str, dict[ClientConnection, None]] = {}
        self._idle: dict[str, dict[ClientConnection, None]] = {}
        self._count = 0
        self._unread: dict[ClientConnection, _Unread] = {}
        self._bodies: dict[ClientConnection, Hashable] = {}
        """The clients with bytes of bodies, each with its caller."""
        self._body_totals: dict[Hashable, int] = {}
        """The bytes of bodies by caller."""
        self.body_bytes = 0
        """Bytes of the bodies of requests that are not answered yet."""
        self._timers: dict[ClientConnection, asyncio.TimerHandle] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self.refusals = RefusalLog()

    def admit(self, client: ClientConnection, *, is_proxy: bool = False) -> bool:
        """Count a new connection, closing an idle one at the limit. Returns False when it has to be refused.

        `is_proxy`: any number may come from its address.
        """
        if not is_proxy and self._is_full(client.address):
            return False
        if self._count >= self._total:
            most = max(self._idle, key=lambda address: len(self._open[address]), default=None)
            if most is None or not self._close_idle(most):
                self.refusals.add("connection beyond http.connections", client.address)
                return False
        self._open.setdefault(client.address, {})[client] = None
        self._count += 1
        self.idle(client)
        return True

    def move(self, client: ClientConnection, address: str, *, is_proxy: bool) -> bool:
        """Count the connection of a proxy for another address. Returns False when that has too many."""
        if client.address == address or client not in self._open.get(client.address, ()):
            return True
        if not is_proxy and self._is_full(address):
            return False
        is_idle = client in self._idle.get(client.address, ())
        self._forget_address(client)
        client.address = address
        self._open.setdefault(address, {})[client] = None
        if is_idle:
            self.idle(client)
        return True

    def _is_full(self, address: str) -> bool:
        """Whether an address has too many connections, and none of them could be closed."""
        is_full = len(self._open.get(address, ())) >= self._per_address
        if is_full and not self._close_idle(address):
            self.refusals.add("connection beyond http.connections_per_address", address)
            return True
        return False

    def _close_idle(self, address: str) -> bool:
        client = next(iter(self._idle.get(address, ())), None)
        if client is None:
            return False
        self.leave(client)
        client.abort()
        return True

    def close_idle(self) -> None:
        """Close all connections that wait for a request."""
        for client in [client for clients in self._idle.values() for client in clients]:
            client.close()

    def leave(self, client: ClientConnection) -> None:
        """Forget a connection. A second call has no effect."""
        if client in self._open.get(client.address, ()):
            self._forget_address(client)
            self._count -= 1
        self._unread.pop(client, None)
        self.release_bodies(client)
        timer = self._timers.pop(client, None)
        if timer is not None:
            timer.cancel()

    def _forget_address(self, client: ClientConnection) -> None:
        self.busy(client)
        same_address = self._open[client.address]
        del same_address[client]
        if not same_address:
            del self._open[client.address]

    def idle(self, client: ClientConnection) -> None:
        """Note that a connection waits for a request."""
        if client in self._open.get(client.address, ()):
            self._idle.setdefault(client.address, {})[client] = None

    def busy(self, client: ClientConnection) -> None:
        """Note that a complete request has arrived and is being answered."""
        same_address = self._idle.get(client.address)
        if (
            same_address is not None
            and same_address.pop(client, client) is None
            and not same_address
        ):
            del self._idle[client.address]

    def watch_unread(self, client: ClientConnection) -> None:
        """Check a little later whether the client has read what is being sent to it."""
        if client in self._timers or not client.unsent_bytes():
            return
        loop = asyncio.get_running_loop()
        self._timers[client] = loop.call_later(UNREAD_SECONDS, self._check_unread, client, loop)

    def _check_unread(self, client: ClientConnection, loop: asyncio.AbstractEventLoop) -> None:
        self._timers.pop(client, None)
        unsent = client.unsent_bytes()
        if not unsent:
            self._unread.pop(client, None)
            return
        if client not in self._unread:
            self._unread[client] = _Unread(client.key(), client.written_bytes - unsent, loop.time())
        key = self._unread[client].key
        total = sum(
            other.unsent_bytes() for other, unread in self._unread.items() if unread.key == key
        )
        if total > self.settings.unsent_bytes:
            self._unread.pop(client, None)
            client.abort()
        else:
            self._limit_unread()
        if client in self._unread and self._sweep is None:
            self._sweep = loop.call_later(self._sweep_seconds, self._close_stalled, loop)

    def _limit_unread(self) -> None:
        """Close connections of the callers with the most unread bytes while all together have too many."""
        sizes = {client: client.unsent_bytes() for client in self._unread}
        while sum(sizes.values()) > self.settings.unsent_bytes_total:
            totals: Counter[Hashable] = Counter()
            for client, size in sizes.items():
                totals[self._unread[client].key] += size
            [(most, _)] = totals.most_common(1)
            victim = max(
                (client for client in sizes if self._unread[client].key == most),
                key=sizes.__getitem__,
            )
            del sizes[victim], self._unread[victim]
            victim.abort()

    def add_body(self, client: ClientConnection, size: int) -> None:
        """Count bytes of a request that is not answered, and refuse requests that arrive while there are too many."""
        own, totals = client.key(), self._body_totals
        if self._bodies.get(client, own) != own:
            # Its caller is known by now.
            counted = client.body_bytes
            self.release_bodies(client)
            size += counted
        self._bodies[client] = own
        client.body_bytes += size
        totals[own] = totals.get(own, 0) + size
        self.body_bytes += size
        limit = self.settings.body_bytes_total
        while self.body_bytes > limit // (1 + RATIO) and client in self._bodies:
            if totals[own] <= RATIO * (limit - self.body_bytes):
                return
            # Only a request that is still arriving can be refused; the largest of the caller with the most goes first.
            arriving = [
                other for other in self._bodies if other in self._idle.get(other.address, ())
            ]
            arriving = [other for other in arriving if totals[self._bodies[other]] > totals[own]]
            victim = max(
                arriving,
                key=lambda other: (totals[self._bodies[other]], other.body_bytes),
                default=client,
            )
            self.release_bodies(victim)
            victim.refuse()

    def release_bodies(self, client: ClientConnection) -> None:
        """Count the bodies of a client no more: its requests are answered, or its connection is closed."""
        if client in self._bodies:
            key = self._bodies.pop(client)
            total = self._body_totals.pop(key) - client.body_bytes
            if total:
                self._body_totals[key] = total
            self.body_bytes -= client.body_bytes
            client.body_bytes = 0

    @property
    def _sweep_seconds(self) -> float:
        return min(1.0, self.settings.write_seconds / 4)

    def _close_stalled(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections of clients that have read nothing for `write_seconds`."""
        self._sweep = None
        now = loop.time()
        for client, unread in list(self._unread.items()):
            unsent = client.unsent_bytes()
            sent_bytes = client.written_bytes - unsent
            if not unsent:
                del self._unread[client]
            elif sent_bytes > unread.sent_bytes:
                unread.sent_bytes, unread.since = sent_bytes, now
            elif now - unread.since >= self.settings.write_seconds:
                del self._unread[client]
                client.abort()
        if self._unread:
            self._sweep = loop.call_later(self._sweep_seconds, self._close_stalled, loop)
