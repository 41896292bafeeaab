"""Limits on the bytes that one principal stores, and on the use of the disk; the size of a write."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio import CapacityLimiter, to_thread

from ..core import Core
from ..errors import SessionLimit, StoreUnavailable
from ..journal.entries import OVERHEAD
from ..records import JournalRecord
from ..state.patch import size_of
from ..store.base import Write
from ..store.events.records import LIMIT_SHARE


def entries_bytes(entries: Sequence[JournalRecord]) -> int:
    """Return the approximate bytes of journal entries in the store."""
    parts = (part for entry in entries for part in (entry.request, entry.result, entry.facts))
    return sum(map(_text_bytes, parts)) + sum(
        OVERHEAD + len(entry.error or "") for entry in entries
    )


def written_bytes(write: Write) -> int:
    """Return the approximate bytes that a write adds to the store, without its state, its snapshots and its receipts."""
    size = entries_bytes(write.journal)
    # The start of the call is counted already, with its arguments.
    size += sum(
        _text_bytes(entry.result) + _text_bytes(entry.facts) + len(entry.error or "")
        for entry in write.ended_entries
    )
    if write.summary is not None:
        size += len(write.summary.text) + sum(map(len, write.summary.topics))
    return size


def _text_bytes(value: object) -> int:
    return 0 if value is None else size_of(value)


logger = logging.getLogger("statehold.sessions")

MEASURE_SECONDS: Final = 60.0
"""Shortest time between two measurements of a principal over its budget."""
STALE_SECONDS: Final = 600.0
"""Time after which a principal is measured again in any case: other processes store too, and deletions are not counted."""
SLACK: Final = 10
"""Calls go on, without texts in the journal, until the count exceeds the limit by one in this many."""
DISK_SECONDS: Final = 1.0
"""Seconds for which a reading of the free disk space is used for the writes of calls."""


UNLIMITED: Final = 1 << 62


@dataclass(slots=True)
class Usage:
    """Stored bytes of one principal, as far as this process knows. `measured_at` is None before the first measurement."""

    bytes: int = 0
    measured_at: float | None = None
    growth: int = 0
    """Bytes counted since the running measurement began. It may miss them, so they are added to its result."""
    measuring: bool = False
    is_near: bool = False
    """Whether they were near their limit when they were measured."""

    def add(self, growth: int) -> None:
        """Count bytes that the principal stores or, if negative, no longer stores."""
        self.bytes = max(0, self.bytes + growth)
        self.growth += growth


class Quota:
    """Counts the bytes that principals store: writes of this process at once, the rest by measuring in the background.

    Every write of a session counts. A write that a caller asks for is refused beyond the budget. One that follows a call is
    made, with less in it: no result for repeats of an operation id, no texts in the journal.

    It lives as long as the registry. Only the measurement takes time in proportion to the stored
    bytes. Before the first measurement of a principal only the writes of this process count. One principal is measured at
    a time, so that a measurement never holds more than one connection of the store.

    The bytes of files are counted in a thread of its own.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._thread = CapacityLimiter(1)
        self._turn = anyio.Lock()
        self._floor = core.policy.free_disk_bytes
        self._usage = defaultdict[str, Usage](Usage)
        self._disk_is_low = False
        self._disk_read_at: float | None = None

    def check(self, owner: str, growth: int) -> None:
        """Check as admit() does, for bytes that the write itself counts."""
        self.admit(owner, growth)
        self.admit(owner, -growth)

    def admit(self, owner: str, growth: int) -> None:
        """Count `growth` bytes that a principal is about to store; a negative number makes room.

        Raises:
            SessionLimit: the budget of the principal is used up, or the disk is nearly full. Nothing was counted.
        """
        if growth > 0:
            self._check_disk()
        most = self._limit_of(owner)
        if not most:
            return
        usage = self._usage[owner]
        over = growth > 0 and usage.bytes + growth > most
        self._measure_when_due(owner, usage, over=over)
        if over:
            raise self._exceeded(owner, usage)
        usage.add(growth)

    def count(self, owner: str, growth: int) -> None:
        """Count bytes that a principal stores whatever its budget, because they follow something that has happened."""
        if growth and self._limit_of(owner):
            usage = self._usage[owner]
            self._measure_when_due(owner, usage, over=False)
            usage.add(growth)

    def room(self, owner: str) -> int:
        """Return the bytes of texts and results that a principal may still store; nothing while the disk is nearly full."""
        if self._floor and self._is_disk_low():
            return 0
        most = self._limit_of(owner)
        return max(0, most - self._usage[owner].bytes) if most else UNLIMITED

    def admit_call(self, owner: str) -> None:
        """Check that a principal may call a service, which adds an entry to the journal.

        Raises:
            SessionLimit: its budget is exceeded so far that not even entries without texts are stored.
        """
        usage, most = self._usage.get(owner), self._limit_of(owner)
        if usage is not None and most and usage.bytes > most + most // SLACK:
            self._measure_when_due(owner, usage, over=True)
            raise self._exceeded(owner, usage)

    def _limit_of(self, owner: str) -> int:
        """Return the bytes that the sessions of a principal may take; 0 for no limit."""
        limits = self._core.limits
        if limits.is_active:
            return limits.of(owner).stored_bytes
        return self._core.policy.stored_bytes_per_principal

    def _is_disk_low(self) -> bool:
        now = self._core.clock.now()
        if self._disk_read_at is None or not 0 <= now - self._disk_read_at < DISK_SECONDS:
            free = self._core.store.free_bytes()
            self._disk_is_low = free is not None and free < self._floor
            self._disk_read_at = now
        return self._disk_is_low

    def _exceeded(self, owner: str, usage: Usage) -> SessionLimit:
        limits = self._core.limits.of(owner)
        return SessionLimit(
            f"The caller's sessions take {usage.bytes} of the {limits.stored_bytes} bytes that they may take in the store "
            f"({limits.name('stored_bytes')}), closed ones included.",
            retry_after=MEASURE_SECONDS,
            recovery="Delete sessions that you no longer need; closing one helps only when it is purged.",
        )

    def usage(self, owner: str) -> dict[str, Any]:
        """Return the count of a principal, its limit (0: none), and when it was measured (None: not yet)."""
        usage = self._usage[owner]
        self._measure_when_due(owner, usage, over=False)
        return {
            "bytes": usage.bytes,
            "limit": self._limit_of(owner),
            "measured_at": usage.measured_at,
        }

    def _measure_when_due(self, owner: str, usage: Usage, *, over: bool) -> None:
        if usage.measuring:
            return
        now, last = self._core.clock.now(), usage.measured_at
        measure_at = now if last is None else last + (MEASURE_SECONDS if over else STALE_SECONDS)
        if over or measure_at <= now:
            usage.measuring = True
            self._core.tasks.spawn(self._measure, owner, usage, measure_at)

    async def _measure(self, owner: str, usage: Usage, measure_at: float) -> None:
        try:
            size: int | None = None
            while size is None:
                await self._core.clock.sleep_until(measure_at)
                try:
                    async with self._turn:
                        usage.growth = 0
                        size = await self._measure_bytes(owner)
                except StoreUnavailable as error:
                    logger.warning("the stored bytes of a principal are not known: %s", error)
                    measure_at = self._core.clock.now() + MEASURE_SECONDS
            was_near, most = usage.is_near, self._limit_of(owner)
            usage.bytes = max(0, size + usage.growth)
            usage.measured_at = now = self._core.clock.now()
            usage.is_near = 0 < most * LIMIT_SHARE <= usage.bytes
            if usage.is_near and not was_near:
                with suppress(StoreUnavailable):
                    await self._core.store.add_limit(owner, "stored bytes", now)
        finally:
            usage.measuring = False

    async def _measure_bytes(self, owner: str) -> int:
        # Write pending entries first: the measurement must see everything counted before it.
        await self._core.store.flush()
        size = await self._core.store.usage(owner)
        if self._core.file_bytes is not None:
            ids = await self._core.store.ids(owner)
            size += await to_thread.run_sync(self._core.file_bytes, ids, limiter=self._thread)
        return size

    def _check_disk(self) -> None:
        free = self._core.store.free_bytes() if self._floor else None
        if free is not None and free < self._floor:
            raise SessionLimit(
                f"The disk of the data folder has {free >> 20} MiB left; the last {self._floor >> 20} MiB are kept for what "
                "is stored already (limits.free_disk_bytes).",
                retry_after=MEASURE_SECONDS,
                recovery="Free some space on the disk of the server; calls of open sessions go on.",
            )
