"""The state machine of a session.

This file holds every transition of a session, as one table. It does no I/O, knows no clock and no protocol: the registry
applies an event, gets the next status, and then does the work that the row describes.

A session is `creating` until every eager service is connected, `idle` while it is open with nothing in flight and `active`
while at least one call is in flight. A `paused` session has given up its live connections, or keeps them only as long as
the budget allows; its record, state and snapshots stay. `error` means that every live connection was lost
and is being recovered; the loss of one among several is shown at its binding. A session that cannot be recovered is paused,
and its next call tries again. `closing` always ends in `closed`,
even when a child hangs. A closed session is kept for its retention and then purged; its id is never used again.

The codes T01 to T20 are those of the documentation. Several rows may share a code: T13 leaves any open status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from .errors import IllegalTransition


class Status(StrEnum):
    """Status of a session."""

    CREATING = "creating"
    IDLE = "idle"
    ACTIVE = "active"
    PAUSED = "paused"
    ERROR = "error"
    CLOSING = "closing"
    CLOSED = "closed"


class Event(StrEnum):
    """Events in the life of a session."""

    CREATED = "created"
    OPENED = "opened"
    OPEN_FAILED = "open_failed"
    CALL_ADMITTED = "call_admitted"
    CALLS_SETTLED = "calls_settled"
    STATE_UPDATED = "state_updated"
    IDLE_TIMED_OUT = "idle_timed_out"
    PAUSE_REQUESTED = "pause_requested"
    RESUMED = "resumed"
    PAUSED_TIMED_OUT = "paused_timed_out"
    IDLE_EXPIRED = "idle_expired"
    CLOSE_REQUESTED = "close_requested"
    CLOSE_FORCED = "close_forced"
    CONNECTION_LOST = "connection_lost"
    RECOVERED = "recovered"
    RECOVERY_FAILED = "recovery_failed"
    LIFETIME_OVER = "lifetime_over"
    RELEASED = "released"
    PURGED = "purged"
    ADOPTED = "adopted"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table. A source or target of None means that the session does not exist."""

    code: str
    source: Status | None
    event: Event
    target: Status | None


LIVE: Final = frozenset({Status.IDLE, Status.ACTIVE, Status.ERROR})
"""Statuses in which a call is admitted at once. It waits for the connection of its own service only."""

OPEN: Final = frozenset({Status.CREATING, Status.IDLE, Status.ACTIVE, Status.PAUSED, Status.ERROR})
"""Statuses of a session that is neither closing nor closed."""


def _rows() -> list[Transition]:
    s, e = Status, Event
    rows = [
        Transition("T01", None, e.CREATED, s.CREATING),
        Transition("T02", s.CREATING, e.OPENED, s.IDLE),
        Transition("T03", s.CREATING, e.OPEN_FAILED, s.CLOSED),
        Transition("T04", s.IDLE, e.CALL_ADMITTED, s.ACTIVE),
        Transition("T05", s.ACTIVE, e.CALLS_SETTLED, s.IDLE),
        Transition("T06", s.IDLE, e.STATE_UPDATED, s.IDLE),
        Transition("T06", s.ACTIVE, e.STATE_UPDATED, s.ACTIVE),
        # transitions/pause.may_pause() decides T07 and T08, and whether an idle session may be closed (T11).
        Transition("T07", s.IDLE, e.IDLE_TIMED_OUT, s.PAUSED),
        Transition("T08", s.IDLE, e.PAUSE_REQUESTED, s.PAUSED),
        Transition("T09", s.PAUSED, e.RESUMED, s.IDLE),
        Transition("T10", s.PAUSED, e.PAUSED_TIMED_OUT, s.CLOSING),
        Transition("T11", s.IDLE, e.IDLE_EXPIRED, s.CLOSING),
        Transition("T15", s.ERROR, e.RECOVERED, s.IDLE),
        Transition("T16", s.ERROR, e.RECOVERY_FAILED, s.PAUSED),
        Transition("T18", s.CLOSING, e.RELEASED, s.CLOSED),
        Transition("T19", s.CLOSED, e.PURGED, None),
    ]
    several = [
        ("T12", (s.IDLE, s.ACTIVE, s.PAUSED, s.ERROR), e.CLOSE_REQUESTED, s.CLOSING),
        ("T13", OPEN, e.CLOSE_FORCED, s.CLOSING),
        ("T14", (s.IDLE, s.ACTIVE, s.PAUSED), e.CONNECTION_LOST, s.ERROR),
        ("T17", OPEN, e.LIFETIME_OVER, s.CLOSING),
        ("T20", (s.IDLE, s.ACTIVE, s.ERROR), e.ADOPTED, s.PAUSED),
    ]
    rows += [
        Transition(code, source, event, target)
        for code, sources, event, target in several
        for source in sources
    ]
    return rows


class _Table(dict[tuple[Status | None, Event], Transition]):
    def __missing__(self, key: tuple[Status | None, Event]) -> Transition:
        raise IllegalTransition(*key)


TABLE: Final[Mapping[tuple[Status | None, Event], Transition]] = MappingProxyType(
    _Table({(row.source, row.event): row for row in _rows()})
)
"""All transitions, by status and event. Raises IllegalTransition for an event that cannot happen in a status."""
