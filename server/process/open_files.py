"""The limit of open files and connections of this process."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

_MAX_USEFUL: Final = 65_536
"""The highest limit we set. Child processes inherit it, and some close every descriptor up to it when they start."""

_MACOS_LIMIT: Final = 10_240
"""The highest limit that macOS accepts. It reports that there is none."""


def file_limit() -> int:
    """Return the highest limit that this process may set."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (_MAX_USEFUL if value == resource.RLIM_INFINITY else value for value in limits)
    return max(soft, min(hard, _MAX_USEFUL))


def raise_limit() -> None:
    """Raise the limit of this process as far as allowed. Most systems start with 1024, which one web page can use up."""
    for number in (file_limit(), _MACOS_LIMIT):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= number:
            return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


def allowed_connections(requested: int, *, reserved_files: int) -> int:
    """Return how many client connections may be open, so that `reserved_files`, at most half of all, stay free."""
    files = file_limit()
    return max(1, min(requested, files - min(reserved_files, files // 2)))
