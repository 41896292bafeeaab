"""How many files and connections this process may have open at once."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

_ENOUGH: Final = 65_536
"""More would do harm: the servers we start inherit it, and some close every number up to it before they do anything."""

_OF_MACOS: Final = 10_240
"""macOS says that there is no limit, and refuses more than this."""


def allowed() -> int | None:
    """Return how many this process may ask for, None where the system has no such limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (_ENOUGH if one == resource.RLIM_INFINITY else one for one in limits)
    return max(soft, min(hard, _ENOUGH))


def raise_limit() -> None:
    """Ask for as many as are allowed. Most systems give 1024 at first, which one page can use up."""
    wanted = allowed()
    if wanted is None:
        return
    import resource

    for number in (wanted, _OF_MACOS):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= number:
            return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


def connections_allowed(wanted: int, *, reserved: int) -> int:
    """Return how many client connections leave `reserved` files to everything else, or half of all when that is less."""
    files = allowed()
    if files is None:
        return wanted
    return max(1, min(wanted, files - min(reserved, files // 2)))


__all__ = ["allowed", "connections_allowed", "raise_limit"]
