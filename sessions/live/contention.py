"""Recognises sessions whose connections of one service end each other in turns.

Some servers end whatever process holds their port. Two sessions then end each other's server for ever: each recovery is the
other's loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..clock import Clock
from .connection import LiveConnection

CONTENTION_SECONDS: Final = 30.0
"""Longest time from the start of a connection to the loss of the one that it ends."""
TURNS: Final = 3
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

    def note_start(self, session_id: str, live: LiveConnection) -> None:
        """Note that a connection of a session is being opened."""
        service = self._services.setdefault(live.service.name, _Starts())
        service.starts = {
            other: start
            for other, start in service.starts.items()
            if other != session_id and _is_alive(start[0])
        }
        service.starts[session_id] = live, self._clock.now()

    def note_loss(self, session_id: str, live: LiveConnection) -> frozenset[str]:
        """Note that a connection was lost. Return the sessions that end each other's, none when there are none."""
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
        if len(service.turns) < TURNS:
            return frozenset()
        contenders = frozenset(each for turn in service.turns for each in turn)
        service.turns.clear()
        return contenders


def _is_alive(live: LiveConnection) -> bool:
    return live.phase in ("opening", "open")
