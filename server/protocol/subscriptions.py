"""Subscriptions to the resources of services: notifications of an upstream are passed on to clients.

A subscription belongs to one session, one service and one URI of that service. The session forms of these addresses are the
names under which the bus of the 2026-07-28 streams knows them, since two sessions may have resources with the same URI.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated

from ...sessions.calls.request import Request
from ...sessions.errors import RequestRefused, SessionError, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.records import Principal
from ...tools.upstream.quiet import InternalContext
from ..gateway.gateway import Gateway
from .uris import session_uri

logger = logging.getLogger("statehold.server")

UPDATED: Final = "notifications/resources/updated"
LIST_CHANGED: Final = "notifications/resources/list_changed"

Tell = Callable[[Connection, str, Mapping[str, Any]], Coroutine[Any, Any, None]]


class Topic(NamedTuple):
    """A resource of a service in a session; without a URI the list of its resources."""

    session: str
    service: str
    uri: str

    @property
    def name(self) -> str:
        return session_uri(self.session, self.service, self.uri)


class Subscriptions:
    """The clients that follow resources of services. It lives as long as the server.

    When the last client of a topic leaves, the service is unsubscribed from it in the background.
    """

    def __init__(self, gateway: Gateway, bus: InMemorySubscriptionBus, tell: Tell) -> None:
        self._gateway = gateway
        self._bus = bus
        self._tell = tell
        self._connections: dict[Topic, dict[Connection, tuple[Principal, str]]] = {}
        self._streams: dict[Topic, list[Principal]] = {}
        gateway.on_resources.append(self._changed)

    def __len__(self) -> int:
        return len(self._connections.keys() | self._streams.keys())

    def join(self, connection: Connection, topic: Topic, principal: Principal, uri: str) -> None:
        """Subscribe a connection to `topic`, which it calls `uri`, until it leaves or ends. A second call does nothing."""
        followers = self._connections.setdefault(topic, {})
        if connection not in followers:
            followers[connection] = principal, uri
            connection.exit_stack.callback(self.leave, connection, topic)

    def leave(self, connection: Connection, topic: Topic) -> None:
        followers = self._connections.get(topic, {})
        found = followers.pop(connection, None)
        if found is not None and not followers:
            del self._connections[topic]
            self._release(topic, found[0])

    @contextmanager
    def streaming(self, topics: Mapping[Topic, str], principal: Principal) -> Generator[None]:
        """Publish changes of `topics` on the bus while the block runs."""
        for topic in topics:
            self._streams.setdefault(topic, []).append(principal)
        try:
            yield
        finally:
            for topic in topics:
                self._streams[topic].remove(principal)
                if not self._streams[topic]:
                    del self._streams[topic]
                    self._release(topic, principal)

    def _release(self, topic: Topic, principal: Principal) -> None:
        if topic.uri and topic not in self._connections and topic not in self._streams:
            self._gateway.registry.spawn(self._unsubscribe, topic, principal)

    async def _unsubscribe(self, topic: Topic, principal: Principal) -> None:
        if self._gateway.registry.live(principal, topic.session) is None:
            return
        method, namespace = "resources/unsubscribe", self._gateway.config.namespace
        request = Request(principal, topic.session, topic.service, method, {}, namespace=namespace)
        try:
            await self._gateway.router.forward(
                request, method, {"uri": topic.uri}, InternalContext()
            )
        except (SessionError, RequestRefused, StoreUnavailable) as error:
            logger.debug("a subscription of %s was not ended: %s", topic.service, error)

    def _changed(self, service: str, session_id: str | None, uri: str) -> None:
        """Note a change; without a session it applies to every session. Does not block."""
        followed = self._connections.keys() | self._streams.keys()
        for topic in followed:
            here = session_id is None or topic.session == session_id
            if here and topic.service == service and topic.uri == uri:
                self._gateway.registry.spawn(self._tell_of, topic)

    async def _tell_of(self, topic: Topic) -> None:
        if topic in self._streams:
            await self._bus.publish(ResourceUpdated(uri=topic.name))
        for connection, (_, uri) in list(self._connections.get(topic, {}).items()):
            method, params = (UPDATED, {"uri": uri}) if topic.uri else (LIST_CHANGED, {})
            self._gateway.registry.spawn(self._tell, connection, method, params)


class Renaming:
    """The session of a stream whose client uses other names for its topics than the bus."""

    def __init__(self, session: Any, names: Mapping[str, str]) -> None:
        self._session = session
        self._names = names

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send a notification with the client's own names; a list has none and gets a list_changed notification."""
        await self._session.send_notification(
            self._renamed(notification), related_request_id=related_request_id
        )

    def _renamed(self, notification: Any) -> Any:
        if isinstance(notification, types.ResourceUpdatedNotification):
            uri = self._names.get(str(notification.params.uri))
            if uri is None:
                return notification
            meta = notification.params.meta
            if not uri:
                params = types.NotificationParams(_meta=cast("Any", meta))
                return types.ResourceListChangedNotification(params=params)
            told = types.ResourceUpdatedNotificationParams(uri=uri, _meta=cast("Any", meta))
            return types.ResourceUpdatedNotification(params=told)
        if isinstance(notification, types.SubscriptionsAcknowledgedNotification):
            filters = notification.params.notifications
            names = [self._names.get(uri, uri) for uri in filters.resource_subscriptions or ()]
            granted: JSON = {
                "resource_subscriptions": [name for name in names if name] or None,
                "resources_list_changed": True if "" in names else None,
            }
            params = notification.params.model_copy(
                update={"notifications": filters.model_copy(update=granted)}
            )
            return types.SubscriptionsAcknowledgedNotification(params=params)
        return notification


__all__ = ["Renaming", "Subscriptions", "Topic"]
