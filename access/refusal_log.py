"""Log lines about refused requests and connections. Strangers cause them, so each kind is written now and then only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from ..sessions.one_line import one_line

LOG_SECONDS: Final = 10.0
"""Seconds between two log lines of one kind."""

logger = logging.getLogger("statehold.server")


class RefusalLog:
    """The log lines of one check. `clock` returns seconds that only rise."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}
        """By kind, the time of the last line, and the refusals since."""

    def add(self, kind: str, address: str, detail: str = "") -> None:
        """Log a refusal of a client, with the number of those that were left out. Kinds are few; details are any."""
        now = self._clock()
        logged_at, count = self._kinds.get(kind, (-LOG_SECONDS, 0))
        if now - logged_at < LOG_SECONDS:
            self._kinds[kind] = (logged_at, count + 1)
            return
        self._kinds[kind] = (now, 0)
        more = f" ({count} more since the last such line)" if count else ""
        logger.warning(
            "%s%s from %s%s", kind, detail and f" {one_line(detail)}", address or "?", more
        )
