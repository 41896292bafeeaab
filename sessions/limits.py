"""The budget of sessions that hold live connections at once, and the queue in front of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from .errors import SessionLimit


@dataclass(frozen=True, slots=True)
class BudgetStatistics:
    """A snapshot of a budget for humans and tests."""

    limit: int
    used: int
    idle: int
    waiting: int


class Budget:
    """At most `limit` holders at once; the rest wait in order, at most `queue` of them and `queue_seconds` each.

    A holder is named by its session id. Holders that are marked idle may be asked to give way, the longest idle first:
    `make_room` is called with such an id and is expected to release() it soon. A busy holder is never asked, nor one that
    `may_leave` is against at that moment. Nothing here waits on anything but the queue, and a waiter that is cancelled
    leaves it.
    """

    def __init__(
        self,
        limit: int,
        *,
        queue: int,
        queue_seconds: float,
        make_room: Callable[[str], None],
        may_leave: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._limit = limit
        self._queue = queue
        self._queue_seconds = queue_seconds
        self._make_room = make_room
        self._may_leave = may_leave
        self._holders: set[str] = set()
        self._idle: OrderedDict[str, None] = OrderedDict()
        self._leaving: set[str] = set()
        self._waiting: OrderedDict[object, tuple[str, anyio.Event]] = OrderedDict()

    def statistics(self) -> BudgetStatistics:
        return BudgetStatistics(
            self._limit, len(self._holders), len(self._idle), len(self._waiting)
        )

    async def acquire(self, holder: str) -> None:
        """Take a place for `holder`; having one already is fine.

        Raises:
            SessionLimit: nobody gave way in time, or the queue is full.
        """
        if holder in self._holders:
            return
        if not self._waiting and len(self._holders) < self._limit:
            self._holders.add(holder)
            return
        if len(self._waiting) >= self._queue:
            raise self._refusal("and the queue for one is full")
        ticket, granted = object(), anyio.Event()
        self._waiting[ticket] = (holder, granted)
        self._evict()
        try:
            with anyio.move_on_after(self._queue_seconds):
                await granted.wait()
        except BaseException:
            # Cancelled at the moment a place was granted: it belongs to the next one.
            if granted.is_set():
                self.release(holder)
            raise
        finally:
            self._waiting.pop(ticket, None)
        if not granted.is_set():
            raise self._refusal(f"and none became free within {self._queue_seconds:g} seconds")

    def release(self, holder: str) -> None:
        """Give the place back; not having one is fine."""
        self._idle.pop(holder, None)
        self._leaving.discard(holder)
        if holder in self._holders:
            self._holders.remove(holder)
            self._grant()

    def mark_idle(self, holder: str) -> None:
        """Let `holder` give way from now on; it counts as the most recently used."""
        if holder in self._holders:
            self._idle[holder] = None
            self._idle.move_to_end(holder)
            if self._waiting:
                self._evict()

    def mark_first(self, holder: str) -> None:
        """Let `holder` give way before every other: it is paused and only keeps its connection."""
        if holder in self._holders:
            self._idle[holder] = None
            self._idle.move_to_end(holder, last=False)
            if self._waiting:
                self._evict()

    def mark_busy(self, holder: str) -> None:
        """Keep `holder` from being asked to give way."""
        self._idle.pop(holder, None)

    def stays(self, holder: str, *, idle: bool) -> None:
        """Tell that `holder` was asked to give way and did not.

        When it is idle all the same it may be asked again later, after the others; else somebody else is asked now.
        """
        self._leaving.discard(holder)
        if idle and holder in self._holders:
            self._idle[holder] = None
            self._idle.move_to_end(holder)
        else:
            self._evict()

    def _grant(self) -> None:
        while self._waiting and len(self._holders) < self._limit:
            _, (holder, granted) = self._waiting.popitem(last=False)
            self._holders.add(holder)
            granted.set()

    def _evict(self) -> None:
        wanted = len(self._waiting) - len(self._leaving)
        for victim in list(self._idle) if wanted > 0 else ():
            if wanted <= 0:
                break
            if self._may_leave(victim):
                del self._idle[victim]
                self._leaving.add(victim)
                wanted -= 1
                self._make_room(victim)

    def _refusal(self, why: str) -> SessionLimit:
        return SessionLimit(
            f"All {self._limit} places for live sessions are in use {why}.",
            retry_after=max(1.0, min(self._queue_seconds, 30.0)),
        )


__all__ = ["Budget", "BudgetStatistics"]
