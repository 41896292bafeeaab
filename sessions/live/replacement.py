"""Replaced connections: the reasons, the notices for the next result, and sessions that end each other's connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..attribution import LAST_WORDS, NOTE
from ..clock import Clock
from ..records import BindingRecord, BindingStatus
from ..services import RestoreReport
from .connection import LiveConnection

CONTENTION_SECONDS: Final = 30.0
"""Longest time from the start of a connection to the loss of the one that it ends."""
MAX_TURNS: Final = 3
"""Losses in turns that are no accident."""

CONTENDED: Final = (
    "sessions ended each other's processes of this service in turns; "
    'scope = "shared" in its settings makes them use one'
)
"""The `last_error` of a binding whose session was paused because of that."""


@dataclass(slots=True)
class _Starts:
    """The connections of one service, and the losses that follow each other in turns."""

    starts: dict[str, tuple[LiveConnection, float]] = field(
        default_factory=dict[str, tuple[LiveConnection, float]]
    )
    """The last connection of each session and when it was started, the newest last."""
    turns: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The session that lost its connection, and the one whose connection was started last before that."""


class Contention:
    """The starts and losses of the connections of one node. It lives as long as the connector."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._services: dict[str, _Starts] = {}

    def record_start(self, session_id: str, live: LiveConnection) -> None:
        """Record that a connection of a session is being opened."""
        service = self._services.setdefault(live.service.name, _Starts())
        service.starts = {
            other: start
            for other, start in service.starts.items()
            if other != session_id and _is_alive(start[0])
        }
        service.starts[session_id] = live, self._clock.now()

    def record_loss(self, session_id: str, live: LiveConnection) -> frozenset[str]:
        """Record that a connection was lost. Return the sessions that end each other's, none when there are none."""
        service = self._services.get(live.service.name, _Starts())
        newest = next(reversed(service.starts), None)
        own, _ = service.starts.pop(session_id, (None, 0.0))
        if own is not live or newest is None or newest == session_id:
            service.turns.clear()
            return frozenset()
        rival, started_at = service.starts[newest]
        if not _is_alive(rival) or self._clock.now() - started_at > CONTENTION_SECONDS:
            service.turns.clear()
            return frozenset()
        if service.turns and service.turns[-1][1] != session_id:
            service.turns.clear()
        service.turns.append((session_id, newest))
        if len(service.turns) < MAX_TURNS:
            return frozenset()
        contenders = frozenset(each for turn in service.turns for each in turn)
        service.turns.clear()
        return contenders


def _is_alive(live: LiveConnection) -> bool:
    return live.phase in ("opening", "open")


STOPPED: Final = "Statehold was stopped"
"""The `last_error` of a binding whose connection was closed because the process ended."""
PAUSE_REASONS: Final = frozenset({STOPPED, CONTENDED})
"""Reasons of pauses that are no errors: they end when the connection is open again."""


def replacement_notice(
    before: BindingRecord, generation: int, report: RestoreReport, earlier: str = ""
) -> str:
    """Return the notice for the first result over a replaced connection.

    `earlier` names what was lost with previous connections and was not reported to a caller.
    """
    reason = "it was paused"
    if before.status is BindingStatus.PAUSED and before.last_error in PAUSE_REASONS:
        reason = before.last_error
    elif before.status.missing:
        # The last words of the server must not be read as ours.
        reason = (before.last_error or "").partition(LAST_WORDS)[0].strip() or "it was lost"
        reason = reason.splitlines()[0][:200].rstrip(".")
    notice = (
        f"{NOTE}: the connection to {before.service} was replaced "
        f"(generation {max(before.told_generation, 1)} to {generation}; {reason})."
    )
    more = f" Lost before that: {earlier}." if earlier else ""
    return notice + _describe_restored(report) + more


def unreported_notice(record: BindingRecord, losses: str) -> str:
    """Return the notice for a connection that an earlier process replaced, and ended before it reported that.

    `losses` names what is known to be lost.
    """
    reason = "the server was restarted before it reported this"
    before = record.model_copy(update={"status": BindingStatus.LOST, "last_error": reason})
    report = RestoreReport(lost=losses or "what the earlier connection held")
    return replacement_notice(before, record.generation, report)


def copy_notice(service: str, report: RestoreReport) -> str:
    """Return the notice for the first result over a connection that began as a copy of another session's."""
    notice = f"{NOTE}: the connection to {service} began as a copy of another session's."
    return notice + _describe_restored(report)


def _describe_restored(report: RestoreReport) -> str:
    restored = f" Restored: {report.restored}." if report.restored else ""
    return f"{restored} Lost: {report.lost or 'nothing that is known'}."
