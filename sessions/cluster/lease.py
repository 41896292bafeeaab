"""The lease of a node: the time for which it may use the connections of its sessions, as it and others see it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..records import NodeRecord

MARGIN_SECONDS: Final = 1.0
"""Part of a lease that its holder does not use, so that clocks may run at rates that differ by 10 % at 10 seconds."""
RENEWALS: Final = 4
"""Renewals in the length of a lease."""


class Lease:
    """The right of this node to act, renewed in the store. Times are of this machine's clock, in seconds.

    The clock must not be set and must run while the machine is suspended. The end counts from before a renewal was sent, so
    that it comes earlier here than to any node that saw the renewal.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_fenced = False
        """Whether the node was declared dead. It never acts again."""
        self.ends_at = float("-inf")
        self._acknowledged_beat = 0

    @property
    def interval(self) -> float:
        """Seconds between two renewals."""
        return self.seconds / RENEWALS

    def may_act(self, now: float) -> bool:
        return now < self.ends_at and not self.is_fenced

    def has_lost(self, beat: int) -> bool:
        """Whether the beat of a renewal shows that the store has lost an earlier one, and maybe other writes."""
        return beat <= self._acknowledged_beat

    def renew(self, sent_at: float, beat: int) -> None:
        """Take an acknowledged renewal."""
        self._acknowledged_beat = beat
        self.ends_at = max(self.ends_at, sent_at + self.seconds - MARGIN_SECONDS)

    def fence(self) -> None:
        self.is_fenced = True


class Observer:
    """Notes the beats of other nodes. Times are of this machine's clock, in seconds.

    The clock of the database alone must not show that a lease is over: it may be set. So a node is silent only when this
    one has seen the same beat for the length of that node's lease.
    """

    def __init__(self, interval: float) -> None:
        self._blind_after = 2 * interval
        self._looked_at = float("-inf")
        self._beats: dict[str, tuple[int, float]] = {}
        """The last beat of each node, and when it was seen first."""

    def note(self, beats: Mapping[str, int], now: float) -> None:
        """Take the beats of all nodes that are not dead.

        After a time without a look everything is forgotten: the others may have had no database either.
        """
        if now - self._looked_at > self._blind_after:
            self._beats.clear()
        self._looked_at = now
        self._beats = {node: self._first_seen(node, beat, now) for node, beat in beats.items()}

    def _first_seen(self, node: str, beat: int, now: float) -> tuple[int, float]:
        known_beat, first_seen_at = self._beats.get(node, (None, now))
        return beat, first_seen_at if beat == known_beat else now

    def is_silent(self, node: str, lease_seconds: float, now: float) -> bool:
        """Whether a node has kept its last noted beat for as long as its lease."""
        _, first_seen_at = self._beats.get(node, (0, now))
        return now - first_seen_at >= lease_seconds


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node that is not dead, as the database has it."""

    record: NodeRecord
    beat: int
    is_expired: bool
    """Whether its lease is over by the clock of the database."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer to a renewal."""

    beat: int | None
    """The beat of the renewed lease; None when the node was declared dead."""
    nodes: list[SeenNode]
    """All nodes that are not dead, the first to start first."""
    database_time: float
    is_reconnected: bool
    """Whether the connection was opened for it, so that the database may have lost commits."""
