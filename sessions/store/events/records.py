"""The events and the reasons for notices that there are, and the records of their subscribers.

This file imports no database library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ...lifecycle import Status
from ...records import JournalKind

TRANSITIONS: Final[Mapping[str, str]] = {
    Status.PAUSED.value: "session_paused",
    Status.CLOSED.value: "session_closed",
    Status.ERROR.value: "session_lost",
}
KINDS: Final = {
    "human_needed": JournalKind.CONTROL.value,
    **dict.fromkeys(TRANSITIONS.values(), JournalKind.TRANSITION.value),
}
"""The events that can be polled, each with the kind of its entries in the journal."""
EVENTS: Final[Mapping[str, str]] = {
    "task_done": "A call that became a task has ended, well or not.",
    "human_needed": "The agent of a session asks for a person.",
    "approval_needed": "A call of a session waits for the approval of a person.",
    "session_paused": "A session was paused.",
    "session_closed": "A session was closed.",
    "session_lost": "All connections of a session were lost.",
    "state_changed": "The state of a session has a new version.",
    "download_finished": "A call in a browser session has received files.",
}
"""Each event with its description."""

Reason: TypeAlias = Literal[
    "human_needed", "approval_needed", "session_lost", "login_needed", "limit_near", "tool_changed"
]
REASONS: Final[Mapping[Reason, str]] = {
    "human_needed": "An agent asks for a person",
    "approval_needed": "A call waits for approval",
    "session_lost": "A session has lost all connections",
    "login_needed": "A login needs its person",
    "limit_near": "A limit is near",
    "tool_changed": "A service has changed its tools",
}
"""The reasons to notify a person, each in words: for the console, and for `[[notify]]`."""
LIMIT_SHARE: Final = 0.9
"""The part of a limit from which on it is near."""
OPERATOR: Final = "operator"
"""The owner of the subscriptions of `[[notify]]`, which is the key of no principal."""
NOTIFY_HOST: Final = "[[notify]] "
"""The prefix of the hosts of these subscriptions; no URL has such a host."""


def request_id(since: float) -> str:
    """Return the id of a request for a person in its session, by the time of its begin."""
    return f"human-{round(since * 1000)}"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of a principal to one event, of one session or of all that it owns."""

    id: str
    owner: str
    """The key of the principal that subscribed."""
    session_id: str
    """Empty for all sessions of the owner."""
    name: str
    url: str
    host: str
    """The host and port of the URL."""
    secret: str = field(repr=False)
    created_at: float
    expires_at: float
    old_secret: str | None = field(default=None, repr=False)
    old_secret_ends_at: float = 0.0
    source: str | None = None
    """The event of a service, and how far it was polled, as JSON; None for an event of ours."""


@dataclass(frozen=True, slots=True)
class EventDelivery:
    """An event that is being sent to a subscriber."""

    subscription: Subscription
    event_id: str
    body: str
    attempts: int
    """Attempts so far, with this one."""
