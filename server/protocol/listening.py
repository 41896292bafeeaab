"""The requests with which clients subscribe to resources, states of sessions, tasks and lists, in both protocol eras."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from ...sessions.errors import OwnedByAnotherNode, SessionLimit
from ...sessions.live.budget import Share
from ..gateway.uris import parse_state_uri
from ..sdk.access import RequestContext
from ..sdk.caller import connection_of, is_forwarded
from .error_translation import translate_errors
from .forwarded_subscriptions import ForwardedSubscriptions
from .resources import Resources
from .state_subscriptions import StateSubscriptions
from .subscriptions import RenamingSession, Subscriptions, Topic
from .tasks import TASK_TOPIC, Tasks, TaskStream

MAX_SUBSCRIPTIONS: Final = 1000
"""The maximum number of resources of one `subscriptions/listen` request; further ones are not acknowledged."""

MAX_STREAMS: Final = 1024
"""The maximum number of open `subscriptions/listen` requests of all callers. The handler of the SDK has the same."""


class SubscriptionHandlers:
    """The handlers of one server.

    `state_subscriptions` notifies of changed states, `subscriptions` of changed resources of services.
    """

    def __init__(
        self,
        resources: Resources,
        state_subscriptions: StateSubscriptions,
        subscriptions: Subscriptions,
        forwarded: ForwardedSubscriptions,
        tasks: Tasks,
        listen: ListenHandler,
    ) -> None:
        self._resources = resources
        self._state_subscriptions = state_subscriptions
        self._subscriptions = subscriptions
        self._forwarded = forwarded
        self._tasks = tasks
        self._listen_handler = listen
        self._share = Share(MAX_STREAMS, shared=resources.gateway.config.needs_token)
        self._streams = Counter[str]()
        """The number of open streams by principal."""

    def register(self, server: Server[Any]) -> None:
        server.add_request_handler(
            "subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen
        )
        server.add_request_handler(
            "resources/subscribe", types.SubscribeRequestParams, self._subscribe
        )
        server.add_request_handler(
            "resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe
        )

    async def _listen(
        self, ctx: RequestContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve a subscription, acknowledging only the notifications that will be sent."""
        requested = params.notifications
        states: dict[str, tuple[str, int]] = {}
        topics: dict[Topic, str] = {}
        for uri in (requested.resource_subscriptions or ())[:MAX_SUBSCRIPTIONS]:
            with suppress(MCPError, OwnedByAnotherNode):
                if parse_state_uri(str(uri)) is None:
                    topics[await self._subscribe_to(ctx, str(uri))] = str(uri)
                else:
                    states[str(uri)] = await self._resources.find_state(ctx, str(uri))
        list_topic = (
            await self._resources.list_topic(ctx) if requested.resources_list_changed else None
        )
        if list_topic is not None:
            topics[list_topic] = ""
        topics |= await self._resources.announced_lists(ctx, requested)
        acknowledged = types.SubscriptionFilter(
            tools_list_changed=requested.tools_list_changed,
            prompts_list_changed=requested.prompts_list_changed,
        )
        names = {**{uri: uri for uri in states}, **{t.name: uri for t, uri in topics.items()}}
        task_ids = await self._tasks.known(ctx, (requested.model_extra or {}).get("taskIds"))
        acknowledged.resource_subscriptions = [
            *names,
            *(TASK_TOPIC + id for id in task_ids),
        ] or None
        acknowledged_params = params.model_copy(update={"notifications": acknowledged})
        session = RenamingSession(TaskStream(ctx, self._tasks), names)
        renaming_ctx = replace(ctx, session=cast("Any", session))
        with (
            self._count_stream(self._resources.principal(ctx).key),
            self._state_subscriptions.follow(states.values()),
            self._subscriptions.publish(topics, self._resources.principal(ctx)),
        ):
            return await self._listen_handler(renaming_ctx, acknowledged_params)

    @contextmanager
    def _count_stream(self, principal: str) -> Generator[None]:
        """Count one stream of a principal while the block runs.

        Raises:
            MCPError: the principal has as many as it may while others may come.
        """
        if not self._share.allows(self._streams[principal], self._streams.total()):
            with translate_errors():
                raise SessionLimit(
                    f"The caller has {self._streams[principal]} of {MAX_STREAMS} open subscriptions/listen requests.",
                    recovery="End some of them.",
                )
        self._streams[principal] += 1
        try:
            yield
        finally:
            self._streams[principal] -= 1
            if not self._streams[principal]:
                del self._streams[principal]

    async def _subscribe(
        self, ctx: RequestContext, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        uri, connection = str(params.uri), connection_of(ctx)
        if parse_state_uri(uri) is not None:
            self._state_subscriptions.join(connection, *await self._resources.find_state(ctx, uri))
            return types.EmptyResult()
        topic = await self._subscribe_to(ctx, uri)
        self._subscriptions.join(connection, topic, self._resources.principal(ctx), uri)
        return types.EmptyResult()

    async def _unsubscribe(
        self, ctx: RequestContext, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        session_id = parse_state_uri(str(params.uri))
        if session_id is not None:
            self._state_subscriptions.leave(connection_of(ctx), session_id)
        else:
            uri = str(params.uri)
            try:
                topic = await self._resources.find_topic(ctx, uri)
            except OwnedByAnotherNode as owner:
                topic = await self._foreign_topic(ctx, uri, owner)
            self._subscriptions.leave(connection_of(ctx), topic)
        return types.EmptyResult()

    async def _subscribe_to(self, ctx: RequestContext, uri: str) -> Topic:
        """Subscribe to a resource of a service in this process, or at the owner of its session.

        Raises:
            MCPError: the text is no address of a resource, or the subscription is refused.
            OwnedByAnotherNode: the request was forwarded, and this node does not own the session.
        """
        try:
            return await self._resources.subscribe(ctx, uri)
        except OwnedByAnotherNode as owner:
            if is_forwarded(ctx):
                raise
            topic = await self._foreign_topic(ctx, uri, owner)
            await self._forwarded.follow(topic, owner.node, self._resources.principal(ctx))
            return topic

    async def _foreign_topic(
        self, ctx: RequestContext, uri: str, owner: OwnedByAnotherNode
    ) -> Topic:
        _, service, upstream_uri = await self._resources.resolve_address(ctx, uri)
        return Topic(cast("str", owner.session_id), service, upstream_uri)
