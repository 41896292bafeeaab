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
from ..gateway.uris import state_uri

logger = logging.getLogger("statehold.server")

POLL_SECONDS = 1.0
"""Seconds between two checks whether another process changed a state with subscriptions."""
DEBOUNCE_SECONDS = 0.1
"""Seconds between two notifications of a client about one state; the changes between them become one notification."""
UPDATED = "notifications/resources/updated"

Notify = Callable[[Connection, str, Mapping[str, Any]], Coroutine[Any, Any, None]]


class StateSubscriptions:
    """The subscriptions of clients to the states of sessions. It lives as long as the server.

    The subscription of a 2026-07-28 client ends with its stream, that of an older client with its connection. Clients are
    notified at once of a change by this process, and at the next check of a change by another process of the data folder.
    """

    def __init__(
        self,
        gateway: Gateway,
        bus: InMemorySubscriptionBus,
        notify: Notify,
        *,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._gateway = gateway
        self._bus = bus
        self._notify = notify
        self._poll_seconds = poll_seconds
        self._counts: Counter[str] = Counter()
        self._versions: dict[str, int] = {}
        """The newest known version of each state with a subscription."""
        self._ids_by_connection: dict[Connection, set[str]] = {}
        self._being_notified: set[str] = set()
        self._changed_again: set[str] = set()
        self._is_polling = False
        gateway.registry.states.on_changed.append(self._on_changed)

    def __len__(self) -> int:
        return len(self._counts)

    # Subscriptions.
    @contextmanager
    def follow(self, states: Iterable[tuple[str, int]]) -> Generator[None]:
        """Publish changes of states on the bus while the block runs. A state is an id and the version the caller knows."""
        subscribed = list(states)
        for session_id, version in subscribed:
            self._begin(session_id, version)
        try:
            yield
        finally:
            for session_id, _ in subscribed:
                self._end(session_id)

    def join(self, connection: Connection, session_id: str, version: int) -> None:
        """Subscribe a connection to a state until leave() or its end. A second call does nothing."""
        session_ids = self._ids_by_connection.get(connection)
        if session_ids is None:
            session_ids = self._ids_by_connection[connection] = set()
            connection.exit_stack.callback(self._end_all, connection)
        if session_id not in session_ids:
            session_ids.add(session_id)
            self._begin(session_id, version)

    def leave(self, connection: Connection, session_id: str) -> None:
        session_ids = self._ids_by_connection.get(connection, set())
        if session_id in session_ids:
            session_ids.discard(session_id)
            self._end(session_id)

    def _end_all(self, connection: Connection) -> None:
        for session_id in self._ids_by_connection.pop(connection, set()):
            self._end(session_id)

    def _begin(self, session_id: str, version: int) -> None:
        self._counts[session_id] += 1
        self._versions.setdefault(session_id, version)
        if not self._is_polling:
            self._is_polling = True
            self._gateway.registry.spawn(self._poll)

    def _end(self, session_id: str) -> None:
        self._counts[session_id] -= 1
        if not self._counts[session_id]:
            del self._counts[session_id]
            del self._versions[session_id]

    # Notifications.
    def _on_changed(self, session_id: str, version: int) -> None:
        known_version = self._versions.get(session_id)
        if known_version is None or version <= known_version:
            return
        self._versions[session_id] = version
        if session_id in self._being_notified:
            self._changed_again.add(session_id)
        else:
            self._being_notified.add(session_id)
            self._gateway.registry.spawn(self._notify_subscribers, session_id)

    async def _notify_subscribers(self, session_id: str) -> None:
        uri = state_uri(session_id)
        try:
            while True:
                self._changed_again.discard(session_id)
                await self._bus.publish(ResourceUpdated(uri=uri))
                for connection, session_ids in list(self._ids_by_connection.items()):
                    if session_id in session_ids:
                        # In a task of its own: a client that reads nothing must not delay the others.
                        params = {"uri": uri}
                        self._gateway.registry.spawn(self._notify, connection, UPDATED, params)
                await anyio.sleep(DEBOUNCE_SECONDS)
                if session_id not in self._changed_again:
                    return
        finally:
            self._being_notified.discard(session_id)

    async def _poll(self) -> None:
        try:
            while self._counts:
                await anyio.sleep(self._poll_seconds)
                live_ids = {session.id for session in self._gateway.registry.owned_sessions()}
                elsewhere = [
                    session_id for session_id in self._counts if session_id not in live_ids
                ]
                if elsewhere:
                    await self._check_versions(elsewhere)
        finally:
            self._is_polling = False

    async def _check_versions(self, session_ids: list[str]) -> None:
        try:
            versions = await self._gateway.store.state_versions(session_ids)
        except StoreUnavailable as error:
            logger.warning("could not check for states changed by other processes: %s", error)
            return
        for session_id, version in versions.items():
            self._on_changed(session_id, version)
