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


class Shares:
    """Counts the units of a scarce resource, such as connections, that each owner holds.

    An owner may hold as many units as are still free: a single owner half of them, two owners a third each. So there is room
    for a late owner, however many pages of the others are open.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: Counter[str] = Counter()
        self.open = 0

    def full(self, owner: str) -> bool:
        """Return whether an owner may take no more now."""
        return self._of[owner] >= self._most - self.open

    def take(self, owner: str) -> None:
        """Count one more unit of an owner, until give_back(). Does not check the limit: see full()."""
        self.open += 1
        self._of[owner] += 1

    def give_back(self, owner: str) -> None:
        """Count one unit less."""
        self.open -= 1
        self._of[owner] -= 1
        if not self._of[owner]:
            del self._of[owner]


__all__ = ["Shares", "affordable"]
