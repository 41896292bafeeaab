"""The budget of sessions that hold live connections at once, and the queue in front of it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Final, Protocol, TypeAlias

import anyio

from ..errors import SessionLimit

RATIO: Final = 3
"""Where principals share a total, one of them may take this many times what it leaves free: 75 of 100."""
RESERVE: Final = 10
"""Where principals share a total, one in this many units is kept for those that have none."""

REFILL_LOOK: Final = 4
"""Holders, the longest idle first, that are considered at once for refilling the reserve."""

_Queue: TypeAlias = OrderedDict[object, tuple[str, anyio.Event]]


@dataclass(frozen=True, slots=True)
class BudgetStatistics:
    """A snapshot of a budget for humans and tests."""

    limit: int
    used: int
    idle: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a total that one principal may take. The first unit is never refused while one is free."""

    total: int
    most: int = 0
    """A fixed maximum; 0 means none."""
    shared: bool = False
    """Whether other principals may come. Then one may take at most RATIO times what it leaves free, and only a principal
    without a unit may take one of the reserve."""

    def allows(self, own: int, total_used: int) -> bool:
        """Whether a principal that has taken `own` may take one more, when all together use `total_used`."""
        if total_used >= self.total or (self.most and own >= self.most):
            return False
        if not self.shared or own == 0:
            return True
        free = self.total - total_used
        return free > self.total // RESERVE and own + 1 <= RATIO * (free - 1)

    def lacks_reserve(self, total_used: int) -> bool:
        """Whether a part of the reserve is used, where there is one."""
        return total_used > self.total - self.total // RESERVE


class Evictor(Protocol):
    """Has holders of a budget give way. `foreign`: the place is for another owner."""

    def may_evict(self, holder: str, foreign: bool) -> bool:
        """Whether a holder can give way now."""
        ...

    def may_refill(self, holder: str) -> bool:
        """Whether a holder can give its place back to the reserve, although no owner waits for it."""
        ...

    def evict(self, holder: str, foreign: bool) -> None:
        """Have a holder release its place soon, or keep_holder() called. Returns at once."""
        ...


class Budget:
    """At most `limit` holders at once; the rest wait, at most `queue` of them and `queue_seconds` each.

    A holder is named by its session id and belongs to a principal, its owner. A free place goes to the waiting owner that
    holds the fewest (in turn if several do), and to its request that has waited longest. A fair share is `limit`
    divided by the owners that hold or wait for places.

    Holders that are marked idle may be asked to give way, by the evictor that attach() sets. If the requester has less than
    a fair share, the holders of owners that have more are asked first; then the requester's own, then those of others.
    Among them the longest paused is asked first, then the longest idle. Busy holders are never asked, and without an
    evictor none is. A used reserve is refilled by holders of owners that have more than a fair share.

    `most` and `queue_most` are fixed maximums for one owner, 0 for none. With `shared`, no owner but `host` can take all
    places or the whole queue; see Share. Every method but acquire() is synchronous; a cancelled waiter leaves the queue.
    """

    def __init__(
        self,
        limit: int,
        *,
        queue: int,
        queue_seconds: float,
        most: int = 0,
        queue_most: int = 0,
        shared: bool = False,
        host: str | None = None,
    ) -> None:
        self._host = host
        self._capacity = Share(limit, most, shared)
        self._queue_capacity = Share(queue, queue_most, shared)
        self._queue_seconds = queue_seconds
        self._evictor: Evictor | None = None
        self._owners: dict[str, str] = {}
        """The owner of each holder."""
        self._holder_counts = Counter[str]()
        self._idle: OrderedDict[str, bool] = OrderedDict()
        """The holders that may be asked to give way, and whether each goes before those that are not paused."""
        self._evicting: dict[str, str] = {}
        """The holders that were asked to give way, each with the owner that waits for its place."""
        self._tickets = count()
        self._waiting: OrderedDict[str, _Queue] = OrderedDict()
        """The queues of the waiting owners, ordered by when each was served last, the oldest first."""

    def attach(self, evictor: Evictor) -> None:
        """Let holders be asked to give way from now on.

        No evictor exists before its budget, to which its holders give their places back.
        """
        self._evictor = evictor

    def statistics(self) -> BudgetStatistics:
        return BudgetStatistics(
            self._capacity.total, len(self._owners), len(self._idle), self._waiters()
        )

    async def acquire(self, holder: str, owner: str = "") -> None:
        """Take a place for `holder`; having one already is fine.

        Raises:
            SessionLimit: no place became free in time, or the queue is full.
        """
        if holder in self._owners:
            return
        if owner not in self._waiting and self._allows(owner):
            self._take(holder, owner)
            return
        own_queue = self._waiting.get(owner, ())
        if not self._queue_capacity.allows(len(own_queue), self._waiters()):
            raise self._refusal(owner, "and the queue for one is full")
        ticket, admitted = object(), anyio.Event()
        self._waiting.setdefault(owner, OrderedDict())[ticket] = (holder, admitted)
        self._evict()
        try:
            with anyio.move_on_after(self._queue_seconds):
                await admitted.wait()
        except BaseException:
            # A place was granted at the moment of cancellation: pass it on.
            if admitted.is_set():
                self.release(holder)
            raise
        finally:
            if not admitted.is_set():
                self._leave_queue(owner, ticket)
        if not admitted.is_set():
            seconds = self._queue_seconds
            raise self._refusal(owner, f"and none became free within {seconds:g} seconds")

    def take_free(self, owner: str) -> str | None:
        """Take one more place for an owner if one is free, and return its holder, to be released; else None."""
        if owner in self._waiting or not self._allows(owner):
            return None
        ticket = f"{next(self._tickets)}"
        self._take(ticket, owner)
        return ticket

    async def take(self, owner: str) -> str:
        """Take one more place for an owner, and return its holder, to be released.

        Raises:
            SessionLimit: as acquire() does.
        """
        ticket = f"{next(self._tickets)}"
        await self.acquire(ticket, owner)
        return ticket

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncGenerator[None]:
        """Hold one more place for an owner until the block ends.

        Raises:
            SessionLimit: as acquire() does.
        """
        ticket = await self.take(owner)
        try:
            yield
        finally:
            self.release(ticket)

    def release(self, holder: str) -> None:
        """Give the place back; not having one is fine."""
        self._idle.pop(holder, None)
        self._evicting.pop(holder, None)
        owner = self._owners.pop(holder, None)
        if owner is None:
            return
        self._holder_counts[owner] -= 1
        if not self._holder_counts[owner]:
            del self._holder_counts[owner]
        if self._waiting:
            self._admit_waiting(owner)
        self.ask_holders()

    def mark_idle(self, holder: str) -> None:
        """Let `holder` give way from now on; it counts as the most recently used."""
        self._mark(holder)
        self.ask_holders()

    def mark_first(self, holder: str) -> None:
        """Let `holder` give way before those that are only idle: it is paused and only keeps its connection.

        Those that were paused earlier go before it.
        """
        self._mark(holder, first=True)
        self.ask_holders()

    def _mark(self, holder: str, *, first: bool = False) -> None:
        if holder in self._owners:
            self._idle[holder] = first
            self._idle.move_to_end(holder)

    def ask_holders(self) -> None:
        """Ask holders to give way, since more of them may do so by now: for owners that wait, else for the reserve."""
        if self._waiting:
            self._evict()
        elif self._capacity.shared and self._capacity.lacks_reserve(
            len(self._owners) - len(self._evicting)
        ):
            self._refill()

    def mark_busy(self, holder: str) -> None:
        """Keep `holder` from being asked to give way."""
        self._idle.pop(holder, None)

    def keep_holder(self, holder: str, *, idle: bool) -> None:
        """Note that `holder` was asked to give way and did not.

        When it is idle all the same it may be asked again later, after the others; else another one is asked now.
        """
        self._evicting.pop(holder, None)
        if idle and holder in self._owners:
            self._mark(holder)
        else:
            self._evict()

    @property
    def is_waited_for(self) -> bool:
        """Whether an owner waits for a place."""
        return bool(self._waiting)

    def is_over_share(self, holder: str) -> bool:
        """Whether the owner of `holder` has more than a fair share of the places."""
        owner = self._owners.get(holder)
        return owner is not None and self._holder_counts[owner] > self._fair_share()

    def _fair_share(self) -> int:
        owners = self._holder_counts.keys() | self._waiting.keys()
        return max(1, self._capacity.total // max(1, len(owners)))

    def _waiters(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _allows(self, owner: str) -> bool:
        if owner == self._host:
            return len(self._owners) < self._capacity.total
        return self._capacity.allows(self._holder_counts[owner], len(self._owners))

    def _take(self, holder: str, owner: str) -> None:
        self._owners[holder] = owner
        self._holder_counts[owner] += 1

    def _leave_queue(self, owner: str, ticket: object) -> None:
        queue = self._waiting.get(owner)
        if queue is not None:
            queue.pop(ticket, None)
            if not queue:
                del self._waiting[owner]

    def _admit_waiting(self, freed_by: str) -> None:
        """Grant free places. `freed_by` may always have its place again, unless it is another owner's turn."""
        while self._waiting and len(self._owners) < self._capacity.total:
            eligible = [
                owner for owner in self._waiting if owner == freed_by or self._allows(owner)
            ]
            if not eligible:
                return
            owner = min(eligible, key=self._holder_counts.__getitem__)
            if owner == freed_by:
                freed_by = ""
            queue = self._waiting[owner]
            holder, _ = next(iter(queue.values()))
            # A session that opens several connections at once waits several times for one place.
            same = [ticket for ticket, (waiting, _) in queue.items() if waiting == holder]
            admissions = [queue.pop(ticket)[1] for ticket in same]
            self._waiting.move_to_end(owner)
            if not queue:
                del self._waiting[owner]
            self._take(holder, owner)
            for admitted in admissions:
                admitted.set()

    def _evict(self) -> None:
        evictor = self._evictor
        if evictor is None:
            return
        for owner, queue in list(self._waiting.items()):
            missing = len(queue) - list(self._evicting.values()).count(owner)
            for victim in self._candidates(owner) if missing > 0 else ():
                if missing <= 0:
                    break
                foreign = self._owners[victim] != owner
                if evictor.may_evict(victim, foreign):
                    del self._idle[victim]
                    self._evicting[victim] = owner
                    missing -= 1
                    evictor.evict(victim, foreign)

    def _refill(self) -> None:
        """Ask a holder of an owner that has more than a fair share to give way, so that the next new owner need not wait."""
        for victim in islice(self._idle, REFILL_LOOK):
            evictor = self._evictor
            if evictor is not None and self.is_over_share(victim) and evictor.may_refill(victim):
                del self._idle[victim]
                self._evicting[victim] = ""
                evictor.evict(victim, True)
                return

    def _candidates(self, owner: str) -> list[str]:
        """Return the idle holders in the order in which they are asked to give way to an owner."""
        in_use, counts = len(self._owners), self._holder_counts
        share = self._fair_share()
        idle = sorted(self._idle, key=lambda victim: not self._idle[victim])
        own_holders = [victim for victim in idle if self._owners[victim] == owner]
        if in_use < self._capacity.total or not self._capacity.allows(counts[owner], in_use - 1):
            return (
                own_holders  # the owner has its share: a place of another one would not be granted
            )
        foreign = [victim for victim in idle if self._owners[victim] != owner]
        over_share = [v for v in foreign if counts[self._owners[v]] > share > counts[owner]]
        over_share.sort(key=lambda victim: -counts[self._owners[victim]])
        return [
            *over_share,
            *own_holders,
            *(victim for victim in foreign if victim not in over_share),
        ]

    def _refusal(self, owner: str, reason: str) -> SessionLimit:
        own, total = self._holder_counts[owner], self._capacity.total
        subject = f"All {total} places for live sessions are in use"
        if len(self._owners) < total:
            subject = f"The caller's {own} of {total} places for live sessions are in use"
        return SessionLimit(
            f"{subject} {reason} (limits.live_sessions).",
            retry_after=max(1.0, min(self._queue_seconds, 30.0)),
        )
