"""The counts of a soak: calls, faults, and everything that must not happen."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

KINDS: Final = (
    "lost acknowledgements",
    "unreadable states",
    "double runs",
    "orders twice",
    "lost orders",
    "interleaved owners",
    "stale writes",
    "crossings",
    "silent losses",
    "gaps in journal numbers",
    "tracebacks",
    "orphans",
    "unclean stops",
    "calls without an answer",
    "runs without approval",
    "texts that are not sealed",
)


class Acknowledgement(NamedTuple):
    """A call that was answered without an error: its session, and the time of the answer in seconds since 1970."""

    session: str
    at: float


@dataclass(slots=True)
class Findings:
    """The findings so far. `acknowledged` are the calls of services by operation id."""

    calls: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    acknowledged: dict[str, Acknowledgement] = field(default_factory=dict[str, Acknowledgement])
    lost_commits: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Times in which the database acknowledged commits that it lost afterwards, in seconds since 1970."""
    lost_entries_after: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """The last entry of each session's journal, by its number, that the database kept when it lost commits."""
    asked: set[str] = field(default_factory=set[str])
    """The calls that need an approval, by operation id."""
    approved: set[str] = field(default_factory=set[str])
    """Those of them that were approved, or may have been."""
    longest_wait: float = 0.0
    """The most seconds between the first sending of a call and its answer."""
    remarks: list[str] = field(default_factory=list[str])
    _texts: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, text: str) -> None:
        assert kind in KINDS
        self._texts[kind].append(text)

    def of(self, kind: str) -> list[str]:
        return self._texts[kind]

    def explains(self, at: float) -> bool:
        """Whether the database may have lost a commit that was acknowledged at this time."""
        return any(begin <= at <= end for begin, end in self.lost_commits)
