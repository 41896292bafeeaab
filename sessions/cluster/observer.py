"""The silence of other nodes, measured by the clock of this machine. No I/O."""

from __future__ import annotations

from collections.abc import Mapping


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
