"""Notices to people by `[[notify]]`: the subscriptions of the settings of this process, and their commands and addresses."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final, TypeAlias, cast

import anyio
import httpx2

from ...sessions.errors import StoreUnavailable
from ...sessions.json_codec import JSON, dumps, loads
from ...sessions.one_line import plain_name, plural
from ...sessions.owned_map import BoundedMap
from ...sessions.records import Principal, SessionDriver
from ...sessions.registry import Registry
from ...sessions.store.base import NEEDS_HUMAN, ApprovalState
from ...sessions.store.events.records import (
    NOTIFY_HOST,
    OPERATOR,
    REASONS,
    EventDelivery,
    Reason,
    Subscription,
    request_id,
)
from ...sessions.times import seconds_of
from ...tools.http_client import http_options
from ...tools.own.control_tools import ConsoleAddress
from ...tools.processes.command import CommandFailed, run_command
from ..config.sections import NotifySettings
from .deliverer import Postponed
from .webhooks import signed_headers

logger = logging.getLogger("statehold.notify")

SEND_SECONDS: Final = 10.0
"""Seconds that a command or a request may take: fewer than the lease of a delivery has."""
SUBSCRIBED_SECONDS: Final = 172_800.0
"""Seconds after which the subscriptions of settings end that no process has any more."""
RENEW_SECONDS: Final = 43_200.0
RETRY_SECONDS: Final = 30.0
KEPT_SECONDS: Final = 86_400.0
"""Seconds after which a notice is not sent any more."""
MINUTE_NOTICES: Final = 10
"""Notices for one reason about one owner in a minute; more wait for later ones."""
MAX_SENT: Final = 10_000
"""Notices of this process that are known not to be sent again."""
MAX_SUBSCRIPTIONS: Final = 10_000
TEXT_CHARACTERS: Final = 500
_DONE: Final = 204
_Budget: TypeAlias = tuple[str, str, str]
"""The host, the owner and the reason of notices."""
_BRACKETS: Final = str.maketrans("<>", "()")


@dataclass(frozen=True, slots=True)
class _Subject:
    """The subject of a notice: its owner, its address, and the words of others about it."""

    owner: str
    address: str | None
    words: str
    is_left: bool = False


class Notices:
    """Sends the notices of the settings of one process. It has nothing to close.

    A subscription names its settings by their place in the list, so that what waits is sent when they were corrected.
    Addresses, commands and secrets are not stored.
    """

    def __init__(
        self, settings: Sequence[NotifySettings], registry: Registry, console: ConsoleAddress
    ) -> None:
        self._settings = {f"{NOTIFY_HOST}{place}": each for place, each in enumerate(settings)}
        self._store = registry.core.store
        self._clock = registry.core.clock
        self._console = console
        self._sent = BoundedMap[tuple[str, str], None](MAX_SENT)
        self._minute = -1
        self._counts = Counter[_Budget]()
        """The notices of this minute."""
        self._places = BoundedMap[_Budget, int](MAX_SENT)
        """The place of the last one that waits, each minute having MINUTE_NOTICES of them since 1970."""

    async def keep_subscribed(self, are_stored: bool) -> None:
        """Renew the subscriptions until cancelled, soon if they are not stored yet."""
        while True:
            seconds = RENEW_SECONDS if are_stored else RETRY_SECONDS
            await self._clock.sleep_until(self._clock.now() + seconds)
            are_stored = await self.subscribe()

    async def subscribe(self) -> bool:
        """Store the subscriptions of the settings, or have them last longer. Return False if the store does not answer."""
        try:
            for subscription in self._subscriptions(self._clock.now()):
                await self._store.put_subscription(subscription, most=MAX_SUBSCRIPTIONS)
        except StoreUnavailable as error:
            logger.warning("some notices are not sent: %s", error)
            return False
        return True

    def _subscriptions(self, now: float) -> Iterator[Subscription]:
        for host, settings in self._settings.items():
            for reason in settings.on:
                yield Subscription(
                    id=f"{host} {reason}",
                    owner=OPERATOR,
                    session_id="",
                    name=reason,
                    url="",
                    host=host,
                    secret="",
                    created_at=now,
                    expires_at=now + SUBSCRIBED_SECONDS,
                )

    def serves(self, host: str) -> bool:
        return host in self._settings

    async def deliver(self, delivery: EventDelivery) -> int | str | Postponed:
        """Send a notice once, unless it is sent already, too old, or its reason has ended.

        Raises:
            StoreUnavailable: its reason cannot be read.
        """
        host, now = delivery.subscription.host, self._clock.now()
        settings, event = self._settings[host], loads(delivery.body)
        at = seconds_of(event["timestamp"]) or now
        key = (delivery.subscription.id, delivery.event_id)
        is_wanted = event["name"] in settings.on
        if key in self._sent or not is_wanted or at + KEPT_SECONDS <= now:
            return _DONE
        quiet_ends_at = _end_of_quiet(settings.quiet, now)
        if quiet_ends_at is not None:
            return Postponed(quiet_ends_at)
        subject = await self._find(event["name"], event["data"], now)
        if subject is None:
            return _DONE
        wait_ends_at = self._wait_of((host, subject.owner, event["name"]), now)
        if wait_ends_at is not None:
            return Postponed(wait_ends_at)
        answer = await _send(settings, delivery, _document(settings, delivery, event, subject))
        if answer in range(200, 300):
            self._sent[key] = None
            if event["name"] == "limit_near":
                # It has the same id all day, and its delivery keeps it from being sent once more.
                return Postponed(at + KEPT_SECONDS)
        return answer

    def _wait_of(self, budget: _Budget, now: float) -> float | None:
        """Count a notice, and return when it may be sent; None: now."""
        minute = int(now // 60)
        if minute != self._minute:
            self._minute = minute
            self._counts.clear()
        self._counts[budget] += 1
        if self._counts[budget] <= MINUTE_NOTICES:
            return None
        # Each has a minute of its own: if all waited for the next one, all would be claimed again in each.
        place = max((minute + 1) * MINUTE_NOTICES, self._places.get(budget, 0) + 1)
        self._places[budget] = place
        return place // MINUTE_NOTICES * 60.0

    async def _find(self, reason: Reason, data: JSON, now: float) -> _Subject | None:
        """Return the subject of a notice, None if its reason has ended."""
        session_id, owner = data.get("sessionId", ""), data.get("owner", "")
        who = Principal.of_key(owner).words if owner else ""
        match reason:
            case "human_needed" | "session_lost":
                session = await self._store.get(session_id)
                if session is None:
                    return None
                address = self._console.of_session(session_id)
                address = address or f"statehold sessions open {session_id}"
                name, lease = session.name or session_id, session.control
                if reason == "session_lost":
                    return _Subject(session.owner, address, plain_name(name))
                is_same = data["requestId"] == request_id(lease.since)
                if lease.driver is not SessionDriver.REQUESTED or not is_same:
                    return None
                words = f"{plain_name(name)}: {lease.reason}"
                return _Subject(session.owner, address, words, lease.agent_left)
            case "approval_needed":
                key = data["approvalId"]
                approval = await self._store.access.approval(key)
                waits = approval is not None and approval.state == ApprovalState.PENDING
                if approval is None or not waits or approval.ends_at <= now:
                    return None
                address = self._console.of_approval(key) or "statehold approvals list"
                words = plain_name(f"{approval.service}/{approval.tool}")
                return _Subject(approval.owner, address, words)
            case "login_needed":
                login = await self._store.logins.find(owner, data["login"])
                if login is None or login.state != NEEDS_HUMAN:
                    return None
                words = f"{plain_name(login.name)} of {who}"
                return _Subject(owner, self._console.of_page("logins"), words)
            case "limit_near":
                return _Subject(owner, self._console.of_page(""), f"{data['limit']} of {who}")
            case "tool_changed":
                service, names = data["service"], cast("list[str]", data["names"])
                if not await self._store.access.changed_pins(service, data["config"]):
                    return None
                shown = ", ".join(map(plain_name, names))
                words = f"{service}, {plural(data['count'], 'definition')}: {shown}"
                return _Subject("", self._console.of_page("services"), words)


def _document(
    settings: NotifySettings, delivery: EventDelivery, event: JSON, subject: _Subject
) -> JSON:
    text = REASONS[event["name"]]
    if settings.content:
        # Some receivers take what is in angle brackets for a link or for a call of everybody.
        text += f": {subject.words[:TEXT_CHARACTERS].translate(_BRACKETS)}"
    return {
        "id": delivery.event_id,
        "event": event["name"],
        "at": event["timestamp"],
        "text": f"{text} (the agent has left)" if subject.is_left else text,
        "address": subject.address or "statehold console",
        "attempt": delivery.attempts,
    }


async def _send(settings: NotifySettings, delivery: EventDelivery, document: JSON) -> int | str:
    content = dumps(document).encode()
    if settings.url is None:
        try:
            await run_command(settings.command, seconds=SEND_SECONDS, data=content)
        except CommandFailed as error:
            logger.warning("the command of [[notify]] failed: %s", error)
            return str(error)
        return _DONE
    url, secret = settings.url.get_secret_value(), settings.secret
    headers = {"content-type": "application/json"}
    if secret is not None:
        headers = signed_headers(delivery.event_id, content, [secret.get_secret_value()])
    try:
        with anyio.fail_after(SEND_SECONDS):
            async with (
                httpx2.AsyncClient(timeout=SEND_SECONDS, **http_options(url)) as http,
                # Only its status is read: the answer may be of any length.
                http.stream("POST", url, content=content, headers=headers) as response,
            ):
                status = response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        # Their texts may have the address, which is a secret.
        logger.warning("the address of [[notify]] was not reached: %s", type(error).__name__)
        return type(error).__name__
    if status not in range(200, 300):
        logger.warning("the address of [[notify]] answered %d", status)
    return status


def _end_of_quiet(quiet: str | None, now: float) -> float | None:
    """Return the end of the quiet hours in which a moment is, by the time zone of the machine; None if it is in none."""
    if quiet is None:
        return None
    moment = datetime.fromtimestamp(now, UTC).astimezone()
    begin, end = map(time.fromisoformat, quiet.split("-"))
    clock = moment.time()
    is_quiet = begin <= clock < end if begin <= end else not end <= clock < begin
    if not is_quiet:
        return None
    ends = datetime.combine(moment.date(), end)
    return (ends if clock < end else ends + timedelta(days=1)).timestamp()
