"""The lease of a node: the time for which it may use the connections of its sessions. No I/O."""

from __future__ import annotations

from typing import Final

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
