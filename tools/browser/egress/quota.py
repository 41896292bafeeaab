"""Limits on the open connections of browsers, so that enough is left for the rest of the process and for other owners."""

from __future__ import annotations

from collections import Counter
from typing import Final

_MOST: Final = 4096
_FILES: Final = 4
"""A connection of a browser takes two files, one to each side. Half of all files are left to the rest of the process."""


def affordable() -> int:
    """Return how many connections this process can serve within its limit of open files."""
    try:
        import resource
    except ImportError:  # Windows
        return _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(_MOST, soft // _FILES)


class TrafficQuota:
    """Counts the units of a scarce resource, such as connections, that each owner holds.

    An owner may hold as many units as are still free: a single owner half of them, two owners a third each. So there is room
    for a late owner, however many pages of the others are open.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_owner: Counter[str] = Counter()
        self.open = 0

    def is_full(self, owner: str) -> bool:
        """Return whether an owner may take no more now."""
        return self._by_owner[owner] >= self._limit - self.open

    def take(self, owner: str) -> None:
        """Count one more unit of an owner, until give_back(). Does not check the limit: see full()."""
        self.open += 1
        self._by_owner[owner] += 1

    def release(self, owner: str) -> None:
        """Count one unit less."""
        self.open -= 1
        self._by_owner[owner] -= 1
        if not self._by_owner[owner]:
            del self._by_owner[owner]
