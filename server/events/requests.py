"""The requests with which clients list, subscribe to and poll the events of their sessions (SEP-3415)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from ...sessions.json_codec import JSON, dumps
from ...sessions.store.events.records import EVENTS, KINDS, Subscription
from ...sessions.times import timestamp
from ...tools.outbound import DestinationRefused
from ..gateway.gateway import Gateway
from ..protocol.error_translation import translate_errors
from ..protocol.request_checks import Requester
from ..sdk.access import RequestContext
from .deliverer import can_read
from .upstream_events import POLL_MS, SESSION, Source, UpstreamEvents
from .webhooks import Webhooks, is_secret

NOT_FOUND: Final = -32011
FORBIDDEN: Final = -32012
RESOURCE_EXHAUSTED: Final = -32013
UNSUPPORTED: Final = -32014
CALLBACK_ENDPOINT_ERROR: Final = -32015

LONGEST_SECONDS: Final = 604_800.0
"""Seconds after which a subscription ends unless its client refreshes it."""
SHORTEST_SECONDS: Final = 60.0
MAX_SUBSCRIPTIONS: Final = 100
"""Subscriptions of one principal."""
MAX_EVENTS: Final = 100
"""Most events of one poll."""

MAX_ARGUMENTS: Final = 16_384
"""Characters of the arguments and the cursor for an event of a service."""

_MEMBERS: Final[JSON] = {"sessionId": SESSION}
_ARGUMENTS: Final[JSON] = {
    "type": "object",
    "properties": _MEMBERS,
    "additionalProperties": False,
}
_PAYLOAD: Final[JSON] = {"type": "object", "properties": _MEMBERS, "required": ["sessionId"]}


class EventParams(types.RequestParams):
    """The parameters of all of these requests. The handlers check them, for the errors that SEP-3415 names."""

    name: Any = None
    arguments: Any = None
    delivery: Any = None
    cursor: Any = None
    ttl_ms: Any = None
    max_events: Any = None
    max_age_ms: Any = None


class EventRequests:
    """Answers the requests about events. Webhooks need a caller with a token: their key is its principal."""

    def __init__(self, gateway: Gateway, webhooks: Webhooks) -> None:
        self._gateway = gateway
        self._webhooks = webhooks
        self._requester = Requester(None, auto_session=False)
        self.upstream_events = UpstreamEvents(gateway)

    def register(self, server: Server[Any]) -> None:
        """Add the handlers to a server."""
        for method, handler in (
            ("events/list", self._list),
            ("events/poll", self._poll),
            ("events/subscribe", self._subscribe),
            ("events/unsubscribe", self._unsubscribe),
        ):
            server.add_request_handler(method, EventParams, handler)

    async def _list(self, ctx: RequestContext, params: EventParams) -> JSON:
        described = [self._describe(name, text) for name, text in EVENTS.items()]
        modes = ["webhook", "poll"] if self._gateway.config.needs_token else ["poll"]
        for name, (_, event) in (await self._find(ctx)).items():
            described.append({**event, "name": name, "delivery": modes})
        return {"events": [each for each in described if each["delivery"]]}

    def _describe(self, name: str, description: str) -> JSON:
        delivery = ["webhook"] if self._gateway.config.needs_token else []
        return {
            "name": name,
            "description": description,
            "delivery": [*delivery, "poll"] if name in KINDS else delivery,
            "inputSchema": _ARGUMENTS,
            "payloadSchema": _PAYLOAD,
        }

    async def _find(self, ctx: RequestContext) -> dict[str, tuple[str, JSON]]:
        requester = self._requester
        is_pinned = requester.pin(ctx) is not None
        return await self.upstream_events.find(requester.principal(ctx), is_pinned=is_pinned)

    async def _source_of(self, ctx: RequestContext, params: EventParams) -> Source | None:
        """Return the event of a service that a request names, in a session of the caller; None for any other name."""
        is_ours = isinstance(params.name, str) and params.name in EVENTS
        found = None if is_ours else (await self._find(ctx)).get(str(params.name))
        if found is None:
            return None
        (service, event), pin = found, self._requester.pin(ctx)
        arguments, cursor = dict(_arguments_of(params)), params.cursor
        if pin is None:
            session_id = arguments.pop("sessionId", None)
        else:
            principal = self._requester.principal(ctx)
            session_id = await self._gateway.pinned_sessions.id_of(principal, pin)
        is_short = len(dumps([arguments, cursor])) <= MAX_ARGUMENTS
        if not isinstance(session_id, str) or not is_short:
            raise _invalid("arguments: should be short, with sessionId, the id of a session.")
        await self._session_of(ctx, {"sessionId": session_id})
        return Source(str(params.name), session_id, service, event["name"], arguments, cursor)

    async def _poll(self, ctx: RequestContext, params: EventParams) -> JSON:
        with translate_errors():
            source = await self._source_of(ctx, params)
            if source is not None:
                members = {"maxEvents": params.max_events, "maxAgeMs": params.max_age_ms}
                principal = self._requester.principal(ctx)
                return await self.upstream_events.poll(principal, source, **members)
        name, arguments = _event_of(params)
        if name not in KINDS:
            raise _unsupported("poll")
        session_id = await self._session_of(ctx, arguments)
        if not session_id:
            raise _invalid("arguments.sessionId: name the session to poll.")
        after, most = params.cursor, params.max_events
        if after is not None and (not isinstance(after, str) or not after.isdecimal()):
            raise _invalid("cursor: is none of this server.")
        is_smaller = type(most) is int and 0 < most < MAX_EVENTS
        with translate_errors():
            page = await self._gateway.store.events(
                session_id,
                name,
                None if after is None else int(after[:18]),
                most if is_smaller else MAX_EVENTS,
            )
        return {**page, "nextPollMs": POLL_MS}

    async def _subscribe(self, ctx: RequestContext, params: EventParams) -> JSON:
        store, truncated = self._gateway.store, params.cursor is not None
        with translate_errors():
            source = await self._source_of(ctx, params)
            subscription = self._key_of(ctx, params, source, is_new=True)
            owner, now = subscription.owner, subscription.created_at
            if source is None:
                await self._session_of(ctx, {"sessionId": subscription.session_id})
            else:
                page = await self.upstream_events.poll(self._requester.principal(ctx), source)
                source = replace(source, cursor=source.cursor or page.get("cursor"))
                subscription = replace(subscription, source=dumps(asdict(source)))
                truncated = page.get("truncated") is True
            is_verified = await store.is_verified_url(
                owner, subscription.url, subscription.secret, now
            )
            reason = None if is_verified else await self._webhooks.challenge(subscription)
            if reason is not None:
                message = "The callback URL did not repeat the challenge"
                raise MCPError(CALLBACK_ENDPOINT_ERROR, message, {"reason": reason})
            if not await store.put_subscription(subscription, most=MAX_SUBSCRIPTIONS):
                data = {"limit": "subscriptions", "max": MAX_SUBSCRIPTIONS}
                raise MCPError(RESOURCE_EXHAUSTED, "Too many subscriptions", data)
        return {
            "id": subscription.id,
            "refreshBefore": timestamp(subscription.expires_at),
            "cursor": None if source is None else source.cursor,
            "truncated": truncated,
        }

    async def _unsubscribe(self, ctx: RequestContext, params: EventParams) -> JSON:
        with translate_errors():
            source = await self._source_of(ctx, params)
            subscription = self._key_of(ctx, params, source, is_new=False)
            if await self._is_allowed(ctx, subscription.session_id):
                await self._gateway.store.delete_subscription(subscription.id)
        return {}

    def _key_of(
        self, ctx: RequestContext, params: EventParams, source: Source | None, *, is_new: bool
    ) -> Subscription:
        """Return the subscription that a request names, checked without a look at the store."""
        if source is None:
            name, arguments = _event_of(params)
        else:
            name, arguments = source.name, {**source.arguments, "sessionId": source.session_id}
        delivery: object = params.delivery
        target = cast("JSON", delivery) if isinstance(delivery, dict) else {}
        if not self._gateway.config.needs_token or target.get("mode", "webhook") != "webhook":
            raise _unsupported(target.get("mode", "webhook"))
        url, secret = target.get("url"), target.get("secret")
        try:
            host = self._webhooks.host_of(url if isinstance(url, str) else "")
        except DestinationRefused as error:
            raise _invalid(f"delivery.url: {error}.") from None
        if is_new and not is_secret(secret):
            raise _invalid("delivery.secret: should be whsec_ and 24 to 64 bytes in base64.")
        owner, now = self._requester.principal(ctx).key, self._gateway.registry.core.clock.now()
        key = json.dumps([owner, url, name, arguments], sort_keys=True)
        most, asked = LONGEST_SECONDS * 1000, params.ttl_ms
        ttl_ms = min(most, asked) if type(asked) in (int, float) else most
        return Subscription(
            id=f"sub_{hashlib.sha256(key.encode()).hexdigest()[:32]}",
            owner=owner,
            session_id=arguments.get("sessionId", ""),
            name=name,
            url=str(url),
            host=host,
            secret=str(secret),
            created_at=now,
            expires_at=now + max(SHORTEST_SECONDS, ttl_ms / 1000),
        )

    async def _session_of(self, ctx: RequestContext, arguments: JSON) -> str:
        """Return the id of the session that the arguments name, empty for none.

        Raises:
            MCPError: the caller has no such session, or may not see it, or the address is that of another one.
        """
        session_id: str = arguments.get("sessionId", "")
        principal, groups = self._requester.principal(ctx), self._requester.groups()
        with translate_errors():
            if not await self._is_allowed(ctx, session_id) or not await can_read(
                self._gateway.registry, principal, groups, session_id
            ):
                raise MCPError(FORBIDDEN, "There is no such session for this caller")
        return session_id

    async def _is_allowed(self, ctx: RequestContext, session_id: str) -> bool:
        pins, pin = self._gateway.pinned_sessions, self._requester.pin(ctx)
        return await pins.allows(self._requester.principal(ctx), pin, session_id)


def _event_of(params: EventParams) -> tuple[str, JSON]:
    """Return the name of the event and the arguments."""
    if not isinstance(params.name, str) or params.name not in EVENTS:
        raise MCPError(NOT_FOUND, "There is no such event", {"kind": "event"})
    members = _arguments_of(params)
    session_id = members.get("sessionId", "")
    if members.keys() - {"sessionId"} or not isinstance(session_id, str) or len(session_id) > 128:
        raise _invalid("arguments: may have sessionId only, the id of a session.")
    return params.name, members


def _arguments_of(params: EventParams) -> JSON:
    arguments: object = params.arguments or {}
    if not isinstance(arguments, dict):
        raise _invalid("arguments: should be an object.")
    return cast("JSON", arguments)


def _invalid(message: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, message)


def _unsupported(mode: object) -> MCPError:
    data = {"feature": "deliveryMode", "value": mode}
    return MCPError(UNSUPPORTED, "The event is not delivered so", data)
