"""The lists of services that are updated now, because a live connection announced that they changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio

from ...tools.upstream.connection import UpstreamConnection

SETTLE_SECONDS: Final = 5.0
"""Seconds that a request for a list waits for the changes that services have announced."""

ListKey: TypeAlias = tuple[str, str]
"""The name of a service, and the notification that announces a change of its list."""


@dataclass(slots=True)
class ListUpdate:
    """The update of one list. It lives until the list did not change for the debounce time."""

    connections: dict[UpstreamConnection, None] = field(
        default_factory=dict["UpstreamConnection", None]
    )
    """The connections that announced a change and were not asked since, in order."""
    announced: int = 0
    """The number of changes that were announced."""
    applied: int = 0
    """The number of them that are in the list."""
    wanted: anyio.Event = field(default_factory=anyio.Event)
    """Set when a caller waits for the list."""

    def announce(self, connection: UpstreamConnection) -> None:
        self.announced += 1
        self.connections[connection] = None

    def begin(self) -> Iterable[UpstreamConnection]:
        """Return the connections to ask now; none when no change was announced since."""
        connections, self.connections = self.connections, {}
        self.wanted = anyio.Event()
        return connections


class ListUpdates:
    """The updates of one gateway that run now. It lives as long as the gateway.

    ListWatcher runs them, and a request for a list waits for them with settle().
    """

    def __init__(self) -> None:
        self._updates: dict[ListKey, ListUpdate] = {}
        self._updated = anyio.Event()
        """Set, and replaced by a new event, when a list was requested."""
        self._slow: set[ListKey] = set()
        """The lists for which a caller waited in vain, until they are renewed."""

    def get(self, key: ListKey) -> ListUpdate | None:
        """Return the update that runs for a list."""
        return self._updates.get(key)

    def add(self, key: ListKey) -> ListUpdate:
        update = self._updates[key] = ListUpdate()
        return update

    def record_applied(self, key: ListKey, count: int) -> None:
        """Record that the first `count` announced changes are in the list, or that it could not be requested."""
        self._updates[key].applied = count
        self._slow.discard(key)
        self._wake_waiters()

    def end(self, key: ListKey) -> None:
        """End an update, and all waits for it."""
        update = self._updates.pop(key)
        update.applied = update.announced
        self._wake_waiters()

    async def settle(self) -> None:
        """Wait, at most SETTLE_SECONDS, until the changes that were announced so far are in the lists.

        A list that is not renewed in that time delays no other caller before it is renewed.
        """
        announced = [
            (key, update, update.announced)
            for key, update in self._updates.items()
            if key not in self._slow
        ]
        with anyio.move_on_after(SETTLE_SECONDS) as wait:
            for _, update, count in announced:
                while update.applied < count:
                    update.wanted.set()
                    await self._updated.wait()
        if wait.cancelled_caught:
            self._slow |= {key for key, update, count in announced if update.applied < count}

    def _wake_waiters(self) -> None:
        self._updated.set()
        self._updated = anyio.Event()
