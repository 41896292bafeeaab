"""Notifications to clients that the state of a session has changed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated

from ...sessions.errors import StoreUnavailable
from ..gateway.gateway import Gateway
from .uris import state_uri

logger = logging.getLogger("statehold.server")

LOOK_SECONDS = 1.0
"""Seconds between two checks whether another process changed a state that a client subscribed to."""
REST_SECONDS = 0.1
"""Seconds between two notifications of a client about one state; the changes between them become one notification."""
UPDATED = "notifications/resources/updated"

Tell = Callable[[Connection, str, Mapping[str, Any]], Coroutine[Any, Any, None]]


class StateSubscriptions:
    """The subscriptions of clients to the states of sessions. It lives as long as the server.

    The subscription of a 2026-07-28 client ends with its stream, that of an older client with its connection. A change by
    this process is announced at once, a change by another process of the same data folder at the next check.
    """

    def __init__(
        self,
        gateway: Gateway,
        bus: InMemorySubscriptionBus,
        tell: Tell,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._gateway = gateway
        self._bus = bus
        self._tell = tell
        self._look_seconds = look_seconds
        self._counts: Counter[str] = Counter()
        self._versions: dict[str, int] = {}
        """The newest known version of each followed state."""
        self._legacy: dict[Connection, set[str]] = {}
        self._telling: set[str] = set()
        self._again: set[str] = set()
        self._looking = False
        gateway.registry.states.on_changed.append(self._changed)

    def __len__(self) -> int:
        return len(self._counts)

    # Following.

    @contextmanager
    def following(self, states: Iterable[tuple[str, int]]) -> Generator[None]:
        """Follow states, each an id and the version that the caller knows, while the block runs."""
        followed = list(states)
        for session_id, version in followed:
            self._begin(session_id, version)
        try:
            yield
        finally:
            for session_id, _ in followed:
                self._end(session_id)

    def join(self, connection: Connection, session_id: str, version: int) -> None:
        """Subscribe a connection to a state until it leaves or ends. A second call does nothing."""
        followed = self._legacy.get(connection)
        if followed is None:
            followed = self._legacy[connection] = set()
            connection.exit_stack.callback(self._left, connection)
        if session_id not in followed:
            followed.add(session_id)
            self._begin(session_id, version)

    def leave(self, connection: Connection, session_id: str) -> None:
        followed = self._legacy.get(connection, set())
        if session_id in followed:
            followed.discard(session_id)
            self._end(session_id)

    def _left(self, connection: Connection) -> None:
        for session_id in self._legacy.pop(connection, set()):
            self._end(session_id)

    def _begin(self, session_id: str, version: int) -> None:
        self._counts[session_id] += 1
        self._versions.setdefault(session_id, version)
        if not self._looking:
            self._looking = True
            self._gateway.registry.spawn(self._look)

    def _end(self, session_id: str) -> None:
        self._counts[session_id] -= 1
        if not self._counts[session_id]:
            del self._counts[session_id]
            del self._versions[session_id]

    # Telling.

    def _changed(self, session_id: str, version: int) -> None:
        known = self._versions.get(session_id)
        if known is None or version <= known:
            return
        self._versions[session_id] = version
        if session_id in self._telling:
            self._again.add(session_id)
        else:
            self._telling.add(session_id)
            self._gateway.registry.spawn(self._tell_of, session_id)

    async def _tell_of(self, session_id: str) -> None:
        uri = state_uri(session_id)
        try:
            while True:
                self._again.discard(session_id)
                await self._bus.publish(ResourceUpdated(uri=uri))
                for connection, followed in list(self._legacy.items()):
                    if session_id in followed:
                        # Each for itself: a client that reads nothing must not keep the others waiting.
                        params = {"uri": uri}
                        self._gateway.registry.spawn(self._tell, connection, UPDATED, params)
                await anyio.sleep(REST_SECONDS)
                if session_id not in self._again:
                    return
        finally:
            self._telling.discard(session_id)

    async def _look(self) -> None:
        try:
            while self._counts:
                await anyio.sleep(self._look_seconds)
                held = {session.id for session in self._gateway.registry.held()}
                elsewhere = [session_id for session_id in self._counts if session_id not in held]
                if elsewhere:
                    await self._compare(elsewhere)
        finally:
            self._looking = False

    async def _compare(self, session_ids: list[str]) -> None:
        try:
            found = await self._gateway.store.state_versions(session_ids)
        except StoreUnavailable as error:
            logger.warning("whether states changed elsewhere is not known: %s", error)
            return
        for session_id, version in found.items():
            self._changed(session_id, version)


__all__ = ["StateSubscriptions"]
