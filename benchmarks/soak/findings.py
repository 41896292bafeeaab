"""The counts of a soak: calls, faults, and everything that must not happen."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

KINDS: Final = (
    "lost acknowledgements",
    "unreadable states",
    "double runs",
    "crossings",
    "silent losses",
    "gaps in journal numbers",
    "tracebacks",
    "orphans",
    "unclean stops",
    "calls without an answer",
)


@dataclass(slots=True)
class Findings:
    """The findings so far. `acknowledged` are the operation ids of service calls that were answered without an error."""

    calls: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    acknowledged: dict[str, str] = field(default_factory=dict[str, str])
    """Operation id to session."""
    remarks: list[str] = field(default_factory=list[str])
    _texts: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, text: str) -> None:
        assert kind in KINDS
        self._texts[kind].append(text)

    def of(self, kind: str) -> list[str]:
        return self._texts[kind]
