"""How many connections browsers may have open: as many as leave enough for the rest of the process, and for each other."""

from __future__ import annotations

from collections import Counter
from typing import Final

_MOST: Final = 4096
_FILES: Final = 4
"""A connection of a browser is two files, one to each side. Half of all files are for what is no browser's."""


def affordable() -> int:
    """Return how many connections this process can serve within its limit of open files."""
    try:
        import resource
    except ImportError:  # Windows
        return _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(_MOST, soft // _FILES)


class Shares:
    """Counts what each owner has of something that is scarce, such as connections.

    An owner may have as many as are still free, and no more: one alone half of them, two a third each. So there is room
    for one who comes late, however many pages of the others are open.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: Counter[str] = Counter()
        self.open = 0

    def full(self, owner: str) -> bool:
        """Whether an owner may have no more now."""
        return self._of[owner] >= self._most - self.open

    def take(self, owner: str) -> None:
        """Count one more of an owner, who gives it back. Asks nobody whether there may be more: see full()."""
        self.open += 1
        self._of[owner] += 1

    def give_back(self, owner: str) -> None:
        """Count one less."""
        self.open -= 1
        self._of[owner] -= 1
        if not self._of[owner]:
            del self._of[owner]


__all__ = ["Shares", "affordable"]
