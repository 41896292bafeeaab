"""The requests with which clients follow resources, states of sessions and lists, in both protocol eras."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from ..sdk.access import RequestContext, connection_of, is_modern
from .resources import Resources
from .state_subscriptions import StateSubscriptions
from .subscriptions import Renaming, Subscriptions, Topic
from .uris import parse_state_uri

SUBSCRIPTIONS: Final = 1000
"""Most resources that one subscription covers."""


class SubscriptionHandlers:
    """The handlers of one server. `followers` notifies about states, `subscriptions` about the resources of services."""

    def __init__(
        self,
        resources: Resources,
        followers: StateSubscriptions,
        subscriptions: Subscriptions,
        listen: ListenHandler,
    ) -> None:
        self._resources = resources
        self._followers = followers
        self._subscriptions = subscriptions
        self._listen = listen
        resources.on_listed = self._follow_list

    def register(self, server: Server[Any]) -> None:
        server.add_request_handler(
            "subscriptions/listen", types.SubscriptionsListenRequestParams, self._stream
        )
        server.add_request_handler(
            "resources/subscribe", types.SubscribeRequestParams, self._follow
        )
        server.add_request_handler(
            "resources/unsubscribe", types.UnsubscribeRequestParams, self._unfollow
        )

    async def _stream(
        self, ctx: RequestContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve a subscription, acknowledging only the notifications that will be sent."""
        wanted = params.notifications
        followed: dict[str, tuple[str, int]] = {}
        topics: dict[Topic, str] = {}
        for uri in (wanted.resource_subscriptions or ())[:SUBSCRIPTIONS]:
            with suppress(MCPError):
                if parse_state_uri(str(uri)) is None:
                    topics[await self._resources.subscribe(ctx, str(uri))] = str(uri)
                else:
                    followed[str(uri)] = await self._resources.followed(ctx, str(uri))
        listed = await self._resources.listed(ctx) if wanted.resources_list_changed else None
        if listed is not None:
            topics[listed] = ""
        told = types.SubscriptionFilter(
            tools_list_changed=wanted.tools_list_changed,
            prompts_list_changed=wanted.prompts_list_changed,
        )
        names = {**{uri: uri for uri in followed}, **{t.name: uri for t, uri in topics.items()}}
        told.resource_subscriptions = list(names) or None
        given = params.model_copy(update={"notifications": told})
        renamed = replace(ctx, session=cast("Any", Renaming(ctx.session, names)))
        with (
            self._followers.following(followed.values()),
            self._subscriptions.streaming(topics, self._resources.principal(ctx)),
        ):
            return await self._listen(renamed, given)

    async def _follow(
        self, ctx: RequestContext, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        uri, connection = str(params.uri), connection_of(ctx)
        if parse_state_uri(uri) is not None:
            self._followers.join(connection, *await self._resources.followed(ctx, uri))
            return types.EmptyResult()
        topic = await self._resources.subscribe(ctx, uri)
        self._subscriptions.join(connection, topic, self._resources.principal(ctx), uri)
        return types.EmptyResult()

    async def _unfollow(
        self, ctx: RequestContext, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        session_id = parse_state_uri(str(params.uri))
        if session_id is not None:
            self._followers.leave(connection_of(ctx), session_id)
        else:
            topic = await self._resources.topic(ctx, str(params.uri))
            self._subscriptions.leave(connection_of(ctx), topic)
        return types.EmptyResult()

    def _follow_list(self, ctx: RequestContext, topic: Topic) -> None:
        """Notify a legacy client that listed the resources of a session of changes of that list."""
        if not is_modern(ctx):
            self._subscriptions.join(connection_of(ctx), topic, self._resources.principal(ctx), "")


__all__ = ["SubscriptionHandlers"]
