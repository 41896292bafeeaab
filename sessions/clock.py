"""Time as the sessions see it, injected so that tests never wait."""

from __future__ import annotations

import heapq
import time
from itertools import count
from typing import Protocol

import anyio
import anyio.lowlevel


class Clock(Protocol):
    """Seconds since 1970 in UTC that never run backwards, and a sleep until such a time."""

    def now(self) -> float: ...

    async def sleep_until(self, due_at: float) -> None:
        """Return at `due_at` or later. Cancelling it leaves nothing behind."""
        ...


class SystemClock:
    """Wall time at start, advanced by a clock that no time server adjusts.

    It counts time spent suspended where the system can (CLOCK_BOOTTIME on Linux), so a laptop that sleeps overnight finds
    its idle sessions due.
    """

    def __init__(self) -> None:
        self._id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._offset = time.time() - time.clock_gettime(self._id)

    def now(self) -> float:
        return self._offset + time.clock_gettime(self._id)

    async def sleep_until(self, due_at: float) -> None:
        # An hour at most: a suspended machine's timers do not count the suspension.
        while (remaining := due_at - self.now()) > 0:  # noqa: ASYNC110
            await anyio.sleep(min(remaining, 3600.0))


class ManualClock:
    """A clock that moves only by advance(). For tests."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._waiting: list[tuple[float, int, anyio.Event]] = []
        self._order = count()

    def now(self) -> float:
        return self._now

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a time."""
        return len(self._waiting)

    def advance(self, seconds: float) -> None:
        """Move the clock on and wake the tasks whose time has come."""
        self._now += seconds
        while self._waiting and self._waiting[0][0] <= self._now:
            heapq.heappop(self._waiting)[2].set()

    async def sleep_until(self, due_at: float) -> None:
        if due_at <= self._now:
            await anyio.lowlevel.checkpoint()
            return
        wake_up = anyio.Event()
        heapq.heappush(self._waiting, (due_at, next(self._order), wake_up))
        await wake_up.wait()
