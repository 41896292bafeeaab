"""Subscriptions to the list changes of a 2026-07-28 upstream, which sends them over `subscriptions/listen` only.

Reopening has the pauses of every stream of an upstream that is opened again when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from ...sessions.json_codec import JSON
from .negotiation import Peer

logger = logging.getLogger("statehold.upstream")

LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

PAUSES: Final = (1.0, 5.0, 30.0)
"""Seconds before each retry after a stream ended; the last ones repeat."""

RENEWAL_SECONDS: Final = 60.0
"""Seconds between two requests of a list of which the upstream announces no changes."""

LASTING_SECONDS: Final = 30.0
"""A stream that was open this long does not count as a failure, because proxies end silent streams."""

_KINDS: Final[Mapping[str, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
_WORTH_ANOTHER_TRY: Final = (CONNECTION_CLOSED, INTERNAL_ERROR)

Send = Callable[[JSON], Awaitable[None]]
"""Sends a subscription with a `notifications` filter and returns when its stream has ended. Raises MCPError."""


def list_change_filter(peer: Peer) -> JSON:
    """Return the filter for all list changes that a peer declares; empty for a legacy peer and one that declares none."""
    return {_KINDS[kind]: True for kind in changing_lists(peer)} if peer.modern else {}


def changing_lists(peer: Peer) -> list[str]:
    """Return the kinds of lists of which a peer declares that they can change."""
    kinds: list[str] = []
    for kind in _KINDS:
        capability: object = peer.capabilities.get(kind)
        if isinstance(capability, dict) and cast("JSON", capability).get("listChanged") is True:
            kinds.append(kind)
    return kinds


def subscription_number(params: JSON) -> int | None:
    """Return the request number of the subscription that brought a notification, None if it names none."""
    meta: object = params.get("_meta")
    number = cast("JSON", meta).get(SUBSCRIPTION_ID_META_KEY) if isinstance(meta, dict) else None
    return number if isinstance(number, int) else None


class Reopening:
    """The pauses before one stream is opened again. They grow, and begin anew after a stream that lasted."""

    def __init__(self) -> None:
        self._failures = 0
        self._opened_at: float | None = None

    def record_open(self) -> None:
        self._opened_at = anyio.current_time()

    async def pause(self) -> None:
        """Wait before the next try, after a stream ended or could not be opened."""
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None and anyio.current_time() >= opened_at + LASTING_SECONDS:
            self._failures = 0
        seconds = PAUSES[min(self._failures, len(PAUSES) - 1)]
        self._failures += 1
        await anyio.sleep(seconds)


class QuietLists:
    """The lists of one connection of which its upstream announces no changes. They are asked for again in use.

    Without a peer, as before the introduction and for connections outside of sessions, there are none.
    """

    def __init__(self, peer: Peer | None) -> None:
        quiet = [] if peer is None else [k for k in quiet_lists(peer) if k in peer.capabilities]
        self._methods = [f"notifications/{kind}/list_changed" for kind in quiet]
        self.due_at = anyio.current_time() + RENEWAL_SECONDS if quiet else None
        """When report() is to be called, as anyio.current_time(); None for never."""

    def report(self, report_change: Callable[[str], None]) -> None:
        """Report each list as changed. The next report is due after RENEWAL_SECONDS."""
        self.due_at = anyio.current_time() + RENEWAL_SECONDS
        for method in self._methods:
            report_change(method)


def quiet_lists(peer: Peer) -> list[str]:
    """Return the kinds of lists that Statehold keeps and of which a peer announces no changes."""
    changing = changing_lists(peer)
    return [kind for kind in ("tools", "prompts") if kind not in changing]


class Listener:
    """The subscription of one connection. It lasts until run() is cancelled, or the upstream refuses the subscription.

    `on_change` is called with the notifications for lists that may have changed while no stream was open. All other changes
    arrive as notifications of the connection.
    """

    def __init__(
        self, service: str, filters: JSON, send: Send, on_change: Callable[[str], None]
    ) -> None:
        self._service = service
        self._filters = filters
        self._send = send
        self._on_change = on_change
        self._reopening = Reopening()
        self._heard_before = False

    async def run(self, turn: anyio.Lock | None = None) -> None:
        """Listen, and reconnect when a stream ends. Listeners that share the lock `turn` listen one at a time."""
        try:
            if turn is None:
                await self._follow()
            else:
                async with turn:
                    await self._follow()
        except Exception:
            logger.exception("the subscription to list changes of %s failed", self._service)

    def handle_acknowledgement(self, params: JSON, *, late: bool) -> None:
        """Handle the first message of a stream, which names the accepted filter. `late`: changes may have preceded it."""
        self._reopening.record_open()
        value: object = params.get("notifications")
        filters = cast("JSON", value) if isinstance(value, dict) else {}
        if late or self._heard_before:
            for kind, name in _KINDS.items():
                if filters.get(name) is True:
                    self._on_change(f"notifications/{kind}/list_changed")
        self._heard_before = True

    async def _follow(self) -> None:
        while True:
            try:
                await self._send(self._filters)
                reason = "it was ended"
            except MCPError as error:
                reason = error.message
                if error.code not in _WORTH_ANOTHER_TRY:
                    break
            logger.debug(
                "the subscription to list changes of %s ended and will be renewed: %s",
                self._service,
                reason,
            )
            await self._reopening.pause()
        logger.debug("the subscription to list changes of %s ended: %s", self._service, reason)
