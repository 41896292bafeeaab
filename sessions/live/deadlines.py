"""One heap of deadlines for all timed events: idle, paused too long, lifetime, retention."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

import anyio

from ..clock import Clock

SPARE: Final = 100
"""Entries of the heap that may be out of date, in addition to as many as there are keys."""

OnDue: TypeAlias = Callable[[str], float | None]


class Deadlines:
    """Calls the `on_due(key)` of run() when a deadline has come; it returns the key's next deadline, or None.

    One entry per key is kept, the earliest. A deadline that moves later costs nothing until the old one comes: `on_due`
    then returns the new one. So using a session never touches the heap. `on_due` must not wait; it starts slow work in
    another task.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, str]] = []
        self._earliest: dict[str, float] = {}
        self._order = count()
        self._rescheduled = anyio.Event()

    def __len__(self) -> int:
        return len(self._earliest)

    def schedule(self, key: str, when: float | None) -> None:
        """Look at `key` at `when` or earlier. None leaves things as they are."""
        if when is None or self._earliest.get(key, float("inf")) <= when:
            return
        self._earliest[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        if self._heap[0][0] == when:
            self._rescheduled.set()
        self._drop_outdated()

    def forget(self, key: str) -> None:
        self._earliest.pop(key, None)
        self._drop_outdated()

    def _drop_outdated(self) -> None:
        # Otherwise a closed session would keep its entries until its lifetime would have ended.
        if len(self._heap) <= 2 * len(self._earliest) + SPARE:
            return
        self._heap = [entry for entry in self._heap if self._earliest.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    def run_due(self, on_due: OnDue) -> None:
        """Handle everything that is due now."""
        now = self._clock.now()
        again: list[tuple[str, float | None]] = []
        while self._heap and self._heap[0][0] <= now:
            when, _, key = heapq.heappop(self._heap)
            if self._earliest.get(key) != when:
                continue
            del self._earliest[key]
            again.append((key, on_due(key)))
        for key, when in again:
            self.schedule(key, when)

    async def run(self, on_due: OnDue) -> None:
        """Serve until cancelled."""
        while True:
            self._rescheduled = anyio.Event()
            self.run_due(on_due)
            async with anyio.create_task_group() as race:
                if self._heap:
                    race.start_soon(self._wait, self._heap[0][0], race.cancel_scope)
                await self._rescheduled.wait()
                race.cancel_scope.cancel()

    async def _wait(self, when: float, scope: anyio.CancelScope) -> None:
        await self._clock.sleep_until(when)
        scope.cancel()
