"""The limit of open files and connections of this process."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

_ENOUGH: Final = 65_536
"""The highest useful limit: servers that we start inherit it, and some close every descriptor up to it at their start."""

_OF_MACOS: Final = 10_240
"""The highest limit of macOS, which reports none and refuses more than this."""


def allowed() -> int | None:
    """Return the limit that this process may request, None where the system has no such limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (_ENOUGH if one == resource.RLIM_INFINITY else one for one in limits)
    return max(soft, min(hard, _ENOUGH))


def raise_limit() -> None:
    """Raise the limit to the allowed one. Most systems start with 1024, which one page can use up."""
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
    """Return the client connections that leave `reserved` files, or half of all if that is less, for other uses."""
    files = allowed()
    if files is None:
        return wanted
    return max(1, min(wanted, files - min(reserved, files // 2)))


__all__ = ["allowed", "connections_allowed", "raise_limit"]
