"""Subscriptions to the resources of services: notifications of an upstream are passed on to clients.

A subscription is for one URI of one service in one session. Two sessions may have resources with the same URI, so the bus of
the 2026-07-28 streams identifies a resource by its address in the session.
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
from ...tools.upstream.resource_updates import InternalContext
from ..gateway.gateway import Gateway
from ..gateway.list_changes import PROMPTS, TOOLS
from ..gateway.uris import session_uri

logger = logging.getLogger("statehold.server")

UPDATED: Final = "notifications/resources/updated"
LIST_CHANGED: Final = "notifications/resources/list_changed"

LISTS: Final[Mapping[str, Callable[..., Any]]] = {
    "": types.ResourceListChangedNotification,
    TOOLS: types.ToolListChangedNotification,
    PROMPTS: types.PromptListChangedNotification,
}
"""The notifications of changed lists by the URI of their topic."""

Notify = Callable[[Connection, str, Mapping[str, Any]], Coroutine[Any, Any, None]]


class Topic(NamedTuple):
    """A resource of a service in a session. The lists of the service have the URIs in LISTS."""

    session: str
    service: str
    uri: str

    @property
    def name(self) -> str:
        return session_uri(self.session, self.service, self.uri)


class Subscriptions:
    """The subscriptions of clients to resources of services. It lives as long as the server.

    When the last subscription to a topic ends, `on_released` is called with it, and the subscription at the service is ended
    in the background.
    """

    def __init__(
        self,
        gateway: Gateway,
        bus: InMemorySubscriptionBus,
        notify: Notify,
        on_released: Callable[[Topic], None],
    ) -> None:
        self._gateway = gateway
        self._bus = bus
        self._notify = notify
        self._connections_by_topic: dict[Topic, dict[Connection, tuple[Principal, str]]] = {}
        self._principals_by_topic: dict[Topic, list[Principal]] = {}
        self._on_released = on_released
        gateway.on_resource_changed.append(self._on_changed)

    def __len__(self) -> int:
        return len(self._connections_by_topic.keys() | self._principals_by_topic.keys())

    def join(self, connection: Connection, topic: Topic, principal: Principal, uri: str) -> None:
        """Subscribe a connection to `topic`, which it calls `uri`, until leave() or its end. A second call does nothing."""
        connections = self._connections_by_topic.setdefault(topic, {})
        if connection not in connections:
            connections[connection] = principal, uri
            connection.exit_stack.callback(self.leave, connection, topic)

    def leave(self, connection: Connection, topic: Topic) -> None:
        connections = self._connections_by_topic.get(topic, {})
        subscription = connections.pop(connection, None)
        if subscription is not None and not connections:
            del self._connections_by_topic[topic]
            self._release(topic, subscription[0])

    @contextmanager
    def publish(self, topics: Mapping[Topic, str], principal: Principal) -> Generator[None]:
        """Publish changes of `topics` on the bus while the block runs."""
        for topic in topics:
            self._principals_by_topic.setdefault(topic, []).append(principal)
        try:
            yield
        finally:
            for topic in topics:
                self._principals_by_topic[topic].remove(principal)
                if not self._principals_by_topic[topic]:
                    del self._principals_by_topic[topic]
                    self._release(topic, principal)

    def _release(self, topic: Topic, principal: Principal) -> None:
        if (
            topic.uri not in LISTS
            and topic not in self._connections_by_topic
            and topic not in self._principals_by_topic
        ):
            self._on_released(topic)
            self._gateway.registry.spawn(self._unsubscribe, topic, principal)

    async def _unsubscribe(self, topic: Topic, principal: Principal) -> None:
        if self._gateway.registry.live(principal, topic.session) is None:
            return
        method, namespace = "resources/unsubscribe", self._gateway.config.namespace
        request = Request(principal, topic.session, topic.service, method, {}, namespace=namespace)
        try:
            await self._gateway.router.request_service(
                request, method, {"uri": topic.uri}, InternalContext()
            )
        except (SessionError, RequestRefused, StoreUnavailable) as error:
            logger.debug("could not unsubscribe from a resource of %s: %s", topic.service, error)

    def _on_changed(self, service: str, session_id: str | None, uri: str) -> None:
        """Notify the subscribers of a changed resource; without a session, those of every session. Does not block."""
        topics = self._connections_by_topic.keys() | self._principals_by_topic.keys()
        for topic in topics:
            in_session = session_id is None or topic.session == session_id
            if in_session and topic.service == service and topic.uri == uri:
                self._gateway.registry.spawn(self._notify_subscribers, topic)

    async def _notify_subscribers(self, topic: Topic) -> None:
        if topic in self._principals_by_topic:
            await self._bus.publish(ResourceUpdated(uri=topic.name))
        for connection, (_, uri) in list(self._connections_by_topic.get(topic, {}).items()):
            method, params = (UPDATED, {"uri": uri}) if topic.uri else (LIST_CHANGED, {})
            self._gateway.registry.spawn(self._notify, connection, method, params)


class RenamingSession:
    """Stands in for the SDK's session of a stream whose client uses other URIs than the bus. It renames them."""

    def __init__(self, session: Any, names: Mapping[str, str]) -> None:
        self._session = session
        self._names = names

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send a notification with the client's own URI. A list has none: it gets list_changed instead."""
        await self._session.send_notification(
            self._rename(notification), related_request_id=related_request_id
        )

    def _rename(self, notification: Any) -> Any:
        if isinstance(notification, types.ResourceUpdatedNotification):
            uri = self._names.get(str(notification.params.uri))
            if uri is None:
                return notification
            meta = notification.params.meta
            if uri in LISTS:
                return LISTS[uri](params=types.NotificationParams(_meta=cast("Any", meta)))
            updated_params = types.ResourceUpdatedNotificationParams(
                uri=uri, _meta=cast("Any", meta)
            )
            return types.ResourceUpdatedNotification(params=updated_params)
        if isinstance(notification, types.SubscriptionsAcknowledgedNotification):
            filters = notification.params.notifications
            names = [self._names.get(uri, uri) for uri in filters.resource_subscriptions or ()]
            acknowledged: JSON = {
                "resource_subscriptions": [name for name in names if name not in LISTS] or None,
                "resources_list_changed": True if "" in names else None,
            }
            updated_params = notification.params.model_copy(
                update={"notifications": filters.model_copy(update=acknowledged)}
            )
            return types.SubscriptionsAcknowledgedNotification(params=updated_params)
        return notification
