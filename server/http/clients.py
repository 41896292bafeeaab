"""The client connections of the HTTP server, with bounds on their number and on their unread bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from ..config.http import HttpSettings

SETTLE_SECONDS: Final = 0.05
"""Seconds that sending an answer may take before it counts as unread."""


class Client(Protocol):
    """One connection: the interface of its HTTP protocol."""

    address: str
    written: int
    """Bytes handed to the transport so far."""

    def unsent(self) -> int:
        """Return the bytes that neither the transport nor the application could send yet."""
        ...

    def key(self) -> Hashable:
        """Return the caller, or the address before the caller is known."""
        ...

    def abort(self) -> None: ...


@dataclass(slots=True)
class _Unread:
    """The bytes that a client has not read."""

    key: Hashable
    sent: int
    """Bytes that had left when the client last read something."""
    since: float


class Clients:
    """The connections of one server. Used in its event loop only; lives as long as the server.

    A connection is idle unless a whole request of it is being answered: also while a head or a body is incomplete.
    Only idle connections are closed to make room.
    """

    def __init__(self, settings: HttpSettings | None = None, *, total: int | None = None) -> None:
        settings = settings or HttpSettings()
        self.settings = settings
        self._total = settings.connections if total is None else total
        self._per_address = settings.connections_per_address or max(1, self._total // 2)
        self._open: dict[str, dict[Client, None]] = {}
        self._idle: dict[str, dict[Client, None]] = {}
        self._count = 0
        self._unread: dict[Client, _Unread] = {}
        self._settling: dict[Client, asyncio.TimerHandle] = {}
        self._sweep: asyncio.TimerHandle | None = None

    # Number of connections.

    def admit(self, client: Client) -> bool:
        """Count a new connection, closing an idle one at the limit. Returns False when it has to be refused."""
        same = self._open.get(client.address, {})
        if len(same) >= self._per_address:
            if not self._close_idle(client.address):
                return False
        elif self._count >= self._total:
            most = max(self._idle, key=lambda address: len(self._open[address]), default=None)
            if most is None or not self._close_idle(most):
                return False
        self._open.setdefault(client.address, {})[client] = None
        self._count += 1
        self.idle(client)
        return True

    def _close_idle(self, address: str) -> bool:
        client = next(iter(self._idle.get(address, ())), None)
        if client is None:
            return False
        self.leave(client)
        client.abort()
        return True

    def leave(self, client: Client) -> None:
        """Forget a connection. A second time has no effect."""
        self.busy(client)
        same = self._open.get(client.address, {})
        if client in same:
            del same[client]
            self._count -= 1
            if not same:
                del self._open[client.address]
        self._unread.pop(client, None)
        settling = self._settling.pop(client, None)
        if settling is not None:
            settling.cancel()

    def idle(self, client: Client) -> None:
        """Note that a connection has no whole request that is being answered."""
        if client in self._open.get(client.address, ()):
            self._idle.setdefault(client.address, {})[client] = None

    def busy(self, client: Client) -> None:
        """Note that a whole request arrived."""
        same = self._idle.get(client.address)
        if same is not None and same.pop(client, client) is None and not same:
            del self._idle[client.address]

    # Unread bytes.

    def wrote(self, client: Client) -> None:
        """Watch the bytes being sent to a client, until all are sent."""
        if client in self._settling or not client.unsent():
            return
        loop = asyncio.get_running_loop()
        self._settling[client] = loop.call_later(SETTLE_SECONDS, self._settle, client, loop)

    def _settle(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self._settling.pop(client, None)
        unsent = client.unsent()
        if not unsent:
            self._unread.pop(client, None)
            return
        if client not in self._unread:
            self._unread[client] = _Unread(client.key(), client.written - unsent, loop.time())
        key = self._unread[client].key
        total = sum(one.unsent() for one, unread in self._unread.items() if unread.key == key)
        if total > self.settings.unsent_bytes:
            self._unread.pop(client, None)
            client.abort()
        elif self._sweep is None:
            self._sweep = loop.call_later(self._sweep_seconds, self._look, loop)

    @property
    def _sweep_seconds(self) -> float:
        return min(1.0, self.settings.write_seconds / 4)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections whose clients read nothing for too long."""
        self._sweep = None
        now = loop.time()
        for client, unread in list(self._unread.items()):
            unsent = client.unsent()
            sent = client.written - unsent
            if not unsent:
                del self._unread[client]
            elif sent > unread.sent:
                unread.sent, unread.since = sent, now
            elif now - unread.since >= self.settings.write_seconds:
                del self._unread[client]
                client.abort()
        if self._unread:
            self._sweep = loop.call_later(self._sweep_seconds, self._look, loop)


__all__ = ["SETTLE_SECONDS", "Client", "Clients"]
