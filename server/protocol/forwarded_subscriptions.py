"""Subscriptions to resources of sessions of other nodes: the owner notifies this node, and this node its clients."""

from __future__ import annotations

from typing import Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from ...sessions.json_codec import JSON
from ...sessions.records import Principal
from ..cluster.assertion import Assertion
from ..cluster.node_connection import ConnectionEnded, NodeConnection
from ..cluster.node_dialer import NodeUnreachable
from ..cluster.node_messages import ForwardedRequest
from ..cluster.node_pool import Peers
from ..gateway.gateway import Gateway
from .forwarder import next_message
from .subscriptions import UPDATED, Topic

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_ENVELOPE: Final[JSON] = {
    "io.modelcontextprotocol/protocolVersion": LATEST_MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "statehold", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class _Following:
    """A subscription of this node at the owner of a session."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.begun = anyio.Event()
        """Set when the owner has accepted or refused."""
        self.is_accepted = False


class ForwardedSubscriptions:
    """The subscriptions of this node at other nodes, one for each topic. It lives as long as the server.

    When the owner gives the session up, the subscription ends, and the clients are told once that the resource changed.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._followings: dict[Topic, _Following] = {}

    def __len__(self) -> int:
        return len(self._followings)

    async def follow(self, topic: Topic, node: str, principal: Principal) -> None:
        """Have the clients of this node notified of a topic until end().

        Raises:
            MCPError: the owner cannot be reached, or refuses the subscription.
        """
        following = self._followings.get(topic)
        peers = self._gateway.peers
        if following is None and peers is not None:
            following = self._followings[topic] = _Following()
            self._gateway.registry.spawn(self._follow, following, topic, peers, node, principal)
        if following is not None:
            await following.begun.wait()
        if following is None or not following.is_accepted:
            message = (
                f"The process that holds the session does not notify of changes of {topic.service}"
            )
            raise MCPError(code=types.INVALID_PARAMS, message=message)

    def end(self, topic: Topic) -> None:
        """End the subscription to a topic without subscribers. Does nothing if there is none."""
        following = self._followings.pop(topic, None)
        if following is not None:
            following.scope.cancel()

    async def _follow(
        self, following: _Following, topic: Topic, peers: Peers, node: str, principal: Principal
    ) -> None:
        request = _request(topic).to_request()
        assertion = Assertion(principal, self._gateway.config.namespace, topic.session)
        try:
            with following.scope:
                async with peers.exchange(node, request, assertion) as connection:
                    await self._pass_on(following, topic, connection)
        except (ConnectionEnded, NodeUnreachable):
            pass
        finally:
            if self._followings.get(topic) is following:
                del self._followings[topic]
            following.begun.set()
        if following.is_accepted and not following.scope.cancel_called:
            self._publish(topic)

    async def _pass_on(
        self, following: _Following, topic: Topic, connection: NodeConnection
    ) -> None:
        """Notify the clients of every change that the owner reports, until it ends the subscription."""
        while (message := await next_message(connection)) is not None:
            if message.get("notify") == UPDATED:
                self._publish(topic)
            elif message.get("notify") == ACKNOWLEDGED:
                accepted = message["params"]["notifications"].get("resourceSubscriptions") or ()
                following.is_accepted = topic.name in accepted
                following.begun.set()
                if not following.is_accepted:
                    # The request may still run there: the connection is not used again.
                    raise ConnectionEnded

    def _publish(self, topic: Topic) -> None:
        self._gateway.notify_resource_changed(topic.service, topic.session, topic.uri)


def _request(topic: Topic) -> ForwardedRequest:
    return ForwardedRequest(
        "subscriptions/listen",
        {"notifications": {"resourceSubscriptions": [topic.name]}, "_meta": _ENVELOPE},
        version=LATEST_MODERN_VERSION,
    )
