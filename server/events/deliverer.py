"""The task that sends queued events to their subscribers."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from ...sessions.concurrency import RaceLost, race, unwrap_group
from ...sessions.errors import StoreUnavailable
from ...sessions.principals.rules import PolicyTarget
from ...sessions.records import Principal, ShareRights
from ...sessions.registry import Registry
from ...sessions.store.events.records import OPERATOR, EventDelivery, Subscription
from ...tools.own.own_tool import grantees_of
from .webhooks import OVERLOAD

logger = logging.getLogger("statehold.events")

LEASE_SECONDS: Final = 15.0
"""Seconds after which another process sends an event again whose process has ended."""
LOOK_SECONDS: Final = 30.0
"""Most seconds between two looks for the deliveries of processes that have ended."""
HOST_REQUESTS: Final = 8
"""Requests at once to a host that answers."""
PAUSE_SECONDS: Final = 0.5
"""Seconds after a request to a host that does not."""
OVERLOAD_SECONDS: Final = 5.0
"""Seconds after a request that this process had no room for."""
FAILING_HOSTS: Final = 32
"""Hosts at once that did not answer last time."""
MAX_ATTEMPTS: Final = 10
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 3600.0
_LAST_STATUSES: Final = (410, 413)
"""Statuses after which an event is not sent again (SEP-3415)."""


@dataclass(frozen=True, slots=True)
class Postponed:
    """The outcome of a delivery that is not to be sent before a time."""

    until: float


class Sender(Protocol):
    """Sends events to the hosts that it serves."""

    def serves(self, host: str) -> bool: ...

    async def deliver(self, delivery: EventDelivery) -> int | str | Postponed:
        """Send an event once. Return the status of the answer, or the reason why there is none."""
        ...


async def can_read(
    registry: Registry, principal: Principal, groups: Sequence[str], session_id: str
) -> bool:
    """Whether a principal may have the events of a session, or those of all its own sessions if the id is empty."""
    if principal.key in registry.core.revoked:
        return False
    if not session_id or await registry.core.store.get(session_id, principal.key) is not None:
        return True
    grantees = grantees_of(principal, groups)
    return await registry.sharing.owner(session_id, grantees, ShareRights.VIEW) is not None


class Deliverer:
    """Sends the queued events, of any process, until cancelled. Use one for each sender in a process.

    Hosts do not wait for one another, but those that did not answer last time take turns. A host gets one request at a time,
    and two a second at most, until it takes one. An event is sent at least once, always under the same id; after each
    MAX_ATTEMPTS it waits for the refresh of its subscription.
    """

    def __init__(
        self,
        registry: Registry,
        sender: Sender,
        *,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._registry = registry
        self._store = registry.core.store
        self._clock = registry.core.clock
        self._sender = sender
        self._jitter = jitter
        self._hosts = set[str]()
        """Those that are being sent to."""
        self._failing: dict[str, str] = {}
        """Those that did not answer last time, the longest not tried first, each with its last subscription."""

    async def run(self) -> None:
        """Send what is due, and wait for more."""
        async with anyio.create_task_group() as tasks:
            while True:
                queued = self._store.events_queued
                next_at = await self._look(tasks)
                with suppress(RaceLost):
                    await race(queued.wait, partial(self._clock.sleep_until, next_at))

    async def _look(self, tasks: TaskGroup) -> float:
        """Begin to send to each host for which something is due, and return the time of the next look."""
        now = self._clock.now()
        try:
            found = await self._store.due_hosts()
        except StoreUnavailable as error:
            logger.warning("events wait: %s", error)
            return now + LOOK_SECONDS
        hosts = {host: at for host, at in found.items() if self._sender.serves(host)}
        due = {host for host, at in hosts.items() if at is not None and at <= now} - self._hosts
        self._failing = {host: last for host, last in self._failing.items() if host in hosts}
        places = max(0, FAILING_HOSTS - len(self._hosts & self._failing.keys()))
        again = [host for host in self._failing if host in due][:places]
        for host in (*again, *(due - self._failing.keys())):
            self._hosts.add(host)
            tasks.start_soon(self._send_to, host)
        later = (at for at in hosts.values() if at is not None and at > now)
        return min([now + LOOK_SECONDS, *later])

    async def _send_to(self, host: str) -> None:
        """Send all that is due for a host."""
        most, last = 1, self._failing.get(host, "")
        try:
            while True:
                now = self._clock.now()
                lease_ends_at = now + LEASE_SECONDS
                due = await self._store.claim_deliveries(host, now, lease_ends_at, most, last)
                if not due:
                    return
                last = due[-1].subscription.id
                failures: list[str] = []
                async with anyio.create_task_group() as tasks:
                    for delivery in due:
                        tasks.start_soon(self._deliver, delivery, failures)
                # One of many subscribers of a host may be gone while the host is well.
                if len(failures) < len(due):
                    most = HOST_REQUESTS
                    self._failing.pop(host, None)
                    continue
                most = 1
                logger.debug("events wait for %s: %s", host, failures[0])
                if {*failures} == {OVERLOAD}:
                    await self._clock.sleep_until(self._clock.now() + OVERLOAD_SECONDS)
                    continue
                self._failing.pop(host, None)
                self._failing[host] = last
                await self._clock.sleep_until(self._clock.now() + PAUSE_SECONDS)
                # Others that fail are tried next.
                return
        except Exception as error:
            # A failure of this task would end all deliveries; the store may be down.
            logger.warning("events for %s wait: %s", host, type(unwrap_group(error)).__name__)
            await self._clock.sleep_until(self._clock.now() + LEASE_SECONDS)
        finally:
            self._hosts.discard(host)
            # Something may have become due since the last claim.
            self._store.notify_events_queued()

    async def _deliver(self, delivery: EventDelivery, failures: list[str]) -> None:
        """Send an event once, and note a failure of its host."""
        subscription, store = delivery.subscription, self._store
        if not await self._may_have(subscription):
            await store.delete_subscription(subscription.id)
            return
        answer = await self._sender.deliver(delivery)
        if isinstance(answer, Postponed):
            await store.retry_delivery(delivery, answer.until, delivery.attempts - 1)
            return
        status = 0 if isinstance(answer, str) else answer
        if 200 <= status < 300 or status in _LAST_STATUSES:
            await store.finish_delivery(subscription.id, delivery.event_id)
            return
        reason = answer if isinstance(answer, str) else f"it answers {answer}"
        if not status or status == 429 or status >= 500:
            failures.append(reason)
        due_at, attempts = None, delivery.attempts - (reason == OVERLOAD)
        # All attempts are counted: an event may have come with any of them.
        in_round = attempts % MAX_ATTEMPTS
        if in_round or reason == OVERLOAD:
            delay = min(FIRST_DELAY * 4 ** (in_round - 1), LONGEST_DELAY)
            due_at = self._clock.now() + delay * self._jitter(0.8, 1.2)
        else:
            logger.info("an event for %s was given up: %s", subscription.host, reason)
        await store.retry_delivery(delivery, due_at, attempts)

    async def _may_have(self, subscription: Subscription) -> bool:
        if subscription.owner == OPERATOR:
            return True
        principal = Principal.of_key(subscription.owner)
        target = PolicyTarget.principal(principal)
        membership = await self._store.access.membership(target)
        return await can_read(self._registry, principal, membership.groups, subscription.session_id)
