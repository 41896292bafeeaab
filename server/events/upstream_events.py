"""Events of services (SEP-3415): clients poll for them here, and by webhook get those for which we poll.

A service would take all our callers for one, so it gets no webhook. It is polled over the connection of the session that a
client named, so that nobody gets an event of another one's session.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, cast

import anyio
import mcp_types as types

from ...sessions.calls.request import Request
from ...sessions.concurrency import RaceLost, race
from ...sessions.errors import (
    NotAllowed,
    OwnedByAnotherNode,
    SessionError,
    SessionPaused,
    StoreUnavailable,
)
from ...sessions.json_codec import JSON, dumps, loads
from ...sessions.lifecycle import Status
from ...sessions.live.replacement import STOPPED
from ...sessions.records import BindingStatus, Principal
from ...sessions.services import CallerOptions, RequestSender
from ...sessions.store.events.records import EVENTS, Subscription
from ...tools.upstream.errors import UpstreamMisbehaved, UpstreamRefused
from ...tools.upstream.resource_updates import InternalContext
from ...tools.upstream.service import UpstreamService
from ..gateway.gateway import Gateway

logger = logging.getLogger("statehold.events")

POLL: Final = "events/poll"
POLL_MS: Final = 5000
LOOK_SECONDS: Final = 30.0
"""Most seconds between two looks for the subscriptions that another process has written."""
POLL_SECONDS: Final = 30.0
"""Seconds that a poll may take, with the opening of a connection."""
LONGEST_PAUSE: Final = 300.0
"""Most seconds until the next poll."""
MAX_EVENTS: Final = 100
"""Events that a service is asked for at once, and once a second."""
SESSION: Final[JSON] = {"type": "string", "description": "The id of a session."}


@dataclass(frozen=True, slots=True)
class Source:
    """An event of a service in a session, and the position of a subscription to it."""

    name: str
    """Its name for the client."""
    session_id: str
    service: str
    event: str
    """Its name at the service."""
    arguments: JSON
    cursor: Any = None
    truncated: bool = False
    """Whether events are missing before the next one that the receiver gets."""

    def params(self, **members: Any) -> JSON:
        """Return the parameters of a poll from the position."""
        named = {"name": self.event, "arguments": self.arguments, "cursor": self.cursor}
        return named | {key: value for key, value in members.items() if value is not None}

    def page(self, result: JSON) -> JSON:
        """Return the result of a poll with our names and ids.

        Raises:
            UpstreamMisbehaved: it has no list of events.
        """
        events: object = result.get("events")
        items = cast("list[object]", events) if isinstance(events, list) else [events]
        if not all(isinstance(item, dict) for item in items):
            raise UpstreamMisbehaved(self.service, f"{POLL} answered without events")
        return {**result, "events": [self._event(cast("JSON", item)) for item in items]}

    def _event(self, event: JSON) -> JSON:
        # Ids of two events or services may be equal.
        key = json.dumps([self.service, self.event, event.get("eventId", event)], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        kept = {member: event.get(member) for member in ("timestamp", "data", "cursor")}
        return {"eventId": f"evt_{self.session_id}_{digest}", "name": self.name, **kept}


class _PollContext(InternalContext):
    # A caller without answers would have the connection opened in the older era.
    options = CallerOptions(is_owner=False, can_return_input_required=True)


class UpstreamEvents:
    """The events of the services of one gateway, and the polls for the subscriptions to them.

    Only the process that owns a session polls for it. Polls keep no session from its pause, and resume none from it; but
    they open sessions again that the end of a process has paused.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._registry = gateway.registry
        core = gateway.registry.core
        self._store, self._clock = core.store, core.clock
        self._followed = set[str]()

    async def find(self, principal: Principal, *, is_pinned: bool) -> dict[str, tuple[str, JSON]]:
        """Return service and definition of each event that a principal may poll for, by its name for the client.

        At an address with a pinned session, the events of an only service have their own names, and ours go before them.
        """
        await self._gateway.probes.wait_for_lists()
        services, found = self._gateway.services, dict[str, tuple[str, JSON]]()
        allows = self._registry.core.limits.of(principal.key).allows_service
        for service, upstream in services.items():
            profile = upstream.profile if isinstance(upstream, UpstreamService) else None
            prefix = "" if is_pinned and len(services) == 1 else f"{service}."
            for event in () if profile is None or not allows(service) else profile.events:
                name = f"{prefix}{event['name']}"
                if name not in EVENTS:
                    found[name] = service, event if is_pinned else _with_session(event)
        return found

    async def poll(self, principal: Principal, source: Source, **members: Any) -> JSON:
        """Poll as a call of a principal. Raises like Router.request_service()."""
        space = self._gateway.config.namespace
        request = Request(principal, source.session_id, source.service, POLL, {}, namespace=space)
        params, context = source.params(**members), _PollContext()
        result, _ = await self._gateway.router.request_service(request, POLL, params, context)
        return source.page(result)

    async def run(self) -> None:
        """Poll for all subscriptions until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                # It is set by a new subscription, too.
                queued = self._store.events_queued
                with suppress(StoreUnavailable):
                    found = await self._store.polled_subscriptions(self._clock.now())
                    for new in set(found) - self._followed:
                        self._followed.add(new)
                        tasks.start_soon(self._follow, new)
                next_at = self._clock.now() + LOOK_SECONDS
                with suppress(RaceLost):
                    await race(queued.wait, partial(self._clock.sleep_until, next_at))

    async def _follow(self, subscription_id: str) -> None:
        """Poll for a subscription until it is gone. After each failure the pause doubles, up to its bound."""
        failing = POLL_MS / 1000
        try:
            while True:
                try:
                    found = await self._store.find_subscription(subscription_id)
                    if found is None:
                        return
                    with anyio.fail_after(POLL_SECONDS):
                        pause = await self._poll_for(found, Source(**loads(found.source or "")))
                    failing = POLL_MS / 1000
                except OwnedByAnotherNode:
                    pause = LOOK_SECONDS
                except (SessionError, StoreUnavailable, TimeoutError) as error:
                    logger.debug("the subscription %s waits: %s", subscription_id, error)
                    pause, failing = failing, min(2 * failing, LONGEST_PAUSE)
                await self._clock.sleep_until(self._clock.now() + pause)
        except Exception as error:
            # The next look tries again.
            logger.warning("the subscription %s waits: %s", subscription_id, type(error).__name__)
        finally:
            self._followed.discard(subscription_id)

    async def _poll_for(self, subscription: Subscription, source: Source) -> float:
        """Queue the next events for a subscription, and return the seconds until the next poll."""
        connection, context = await self._connection(subscription.owner, source), _PollContext()
        params = source.params(maxEvents=MAX_EVENTS)
        try:
            result = await connection.request(POLL, params, context)
        except UpstreamRefused as error:
            if source.cursor is None or error.rpc_code != types.INVALID_PARAMS:
                raise
            # It may have forgotten the cursor; without one, it answers where its events are now.
            restarted = replace(source, cursor=None)
            result = await connection.request(POLL, restarted.params(), context)
            result["truncated"] = True
        events = source.page(result)["events"]
        is_cut = source.truncated or result.get("truncated") is True
        if events and is_cut:
            # The member of a poll, at the first event behind the gap.
            events[0]["truncated"], is_cut = True, False
        moved = dumps(asdict(replace(source, cursor=result.get("cursor"), truncated=is_cut)))
        now, is_same = self._clock.now(), not events and moved == subscription.source
        if not is_same and not await self._store.add_polled(subscription, moved, events, now):
            return LOOK_SECONDS
        pause = 0 if result.get("hasMore") is True else result.get("nextPollMs")
        pause = pause if isinstance(pause, int | float) else POLL_MS
        return min(max(pause / 1000, 1.0), LONGEST_PAUSE)

    async def _connection(self, owner: str, source: Source) -> RequestSender:
        """Return the connection of the session, opened if necessary.

        Raises:
            SessionPaused: a pause has closed it. It goes on with the next use of the session.
            SessionError: it cannot be opened, or may not be used.
        """
        registry, principal = self._registry, Principal.of_key(owner)
        session = registry.find_here(principal, source.session_id)
        binding = None if session is None else session.bindings.get(source.service)
        if binding is None or not binding.usable:
            record = await self._store.get(source.session_id, owner)
            is_paused = record is not None and record.status is Status.PAUSED
            for known in await self._store.bindings(source.session_id) if is_paused else ():
                is_closed = known.status is BindingStatus.PAUSED and known.last_error != STOPPED
                if is_closed and known.service == source.service:
                    raise SessionPaused("The session is paused.")
            session = await registry.ready(principal, source.session_id)
            binding = session.bindings.get(source.service)
            if binding is not None:
                await registry.connector.connect_for_call(session, binding)
        registry.core.node.require_lease()
        live = None if binding is None else binding.live
        is_allowed = registry.core.limits.of(owner).allows_service(source.service)
        if live is None or not is_allowed or not isinstance(live.connection, RequestSender):
            raise NotAllowed(f"{source.service} may not be polled in this session.")
        return live.connection


def _with_session(event: JSON) -> JSON:
    """Return the definition of an event with the session as one more argument."""
    schema: JSON = event["inputSchema"]
    properties = {**schema.get("properties", {}), "sessionId": SESSION}
    required = [*schema.get("required", ()), "sessionId"]
    return {**event, "inputSchema": {**schema, "properties": properties, "required": required}}
