"""The one task that writes.

It takes all waiting units, runs them in one transaction, and then reports to each waiter the outcome of its unit. So a
hundred writers share one flush to the disk, and none of them waits for more than two.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskStatus
from sqlalchemy import Connection

from ..errors import SessionFenced, StoreUnavailable
from ..journal.entries import CallEntry
from ..metrics.instruments import Durations
from ..policy import JournalLimits
from .batch import BatchItem, WriteFunction, apply, isolate
from .compaction import Compactor
from .creation import NewSession
from .database import Connections
from .dialect import is_database_fault
from .events import outbox
from .people.audit_queries import AuditAppend
from .rows import Change, JournalAppend, to_journal_append
from .sealing.keyring import NEW_KEYS

logger = logging.getLogger(__name__)

Run: TypeAlias = Callable[..., None]
"""apply() or isolate()."""

BATCH = 1000
"""Most units in one transaction, so that preparing them does not hold up the event loop."""

LINGER = 0.045
"""Seconds that background entries may collect; they must be written within 0.05."""

SYNC = 1.0
"""Seconds until background entries are on the disk, too. Before, they survive the end of the process, but no power cut."""

LATER = 100
"""Most waiting entries whose values are not computed yet: they hold on to the arguments of their calls."""

RETRY = 1.0
"""Seconds that background entries rest after the database failed, unless a unit with a waiter comes meanwhile."""


class Writer:
    """Lives from `run` to `aclose`. Units are applied in the order they were submitted.

    A cancelled waiter does not undo its unit. A change is applied even if it had not been taken yet; any other unit is then
    left out. Appended entries whose batch failed are kept and tried again; past `backlog` those of the owner with the most
    are dropped, of its session with the most, the oldest first.
    """

    def __init__(
        self, connections: Connections, *, backlog: int, limits: JournalLimits | None = None
    ) -> None:
        self._connections = connections
        self._compactor = Compactor(limits)
        self._backlog = backlog
        self._waiting: deque[BatchItem] = deque()
        self._entry_count = 0
        """Number of waiting units without a waiter."""
        self._deferred_count = 0
        """Entries since the last batch whose values are to be computed later."""
        self._wake = asyncio.Event()
        """Set when the waiting units are to be written now."""
        self._timer: asyncio.TimerHandle | None = None
        """Fires when background entries have collected for LINGER seconds."""
        self._resting = False
        self._sync_timer: asyncio.TimerHandle | None = None
        self._sync_due = False
        self._run_ended = anyio.Event()
        self._closing = False
        self._logged_closing = False
        self._writing = False
        self._scope: anyio.CancelScope | None = None
        self.trouble: str | None = None
        """Why the last transaction failed; None since one was written."""
        self.events_queued = anyio.Event()
        """Set and replaced when a transaction has queued deliveries of events."""
        self.on_written: list[Callable[[set[str]], None]] = []
        """Called with the ids of the sessions of which a transaction wrote something. They must not block."""
        self.durations = Durations(
            "statehold_store_write", "Write transactions of the store.", "error_type"
        )
        self.dropped_entries = 0
        """Appended entries given up: too many were waiting, or their values could not be stored."""

    @property
    def idle(self) -> bool:
        """Whether everything that was submitted and appended is on the disk."""
        return not (self._waiting or self._writing or self._connections.unsynced)

    async def submit(self, work: Change | NewSession | AuditAppend | WriteFunction) -> Any:
        """Queue a unit, and return its value when it is durable.

        Raises the error that refused the unit, or StoreUnavailable.
        """
        if self._closing:
            raise _closed_error()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(BatchItem(work, future))
        self._wake.set()
        return await future

    def append(
        self, work: Change | JournalAppend | CallEntry | AuditAppend | WriteFunction, owner: str
    ) -> None:
        """Queue a change of an owner to be applied soon. Never blocks; the outcome is not reported."""
        if self._closing:
            self.dropped_entries += 1
            return
        if isinstance(work, CallEntry):
            self._deferred_count += 1
            if self._deferred_count > LATER:
                work = to_journal_append(work)
        self._waiting.append(BatchItem(work, owner=owner))
        self._entry_count += 1
        if self._entry_count > self._backlog:
            self._limit()
        if self._timer is None and not self._resting:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._wake.set)

    def _limit(self) -> None:
        surplus = self._entry_count - self._backlog
        if surplus <= 0:
            return
        # A few more than necessary, so that not every entry needs a look at all.
        surplus += self._backlog // 100
        counts = defaultdict[str, Counter[str]](Counter)
        for unit in self._waiting:
            if unit.future is None:
                counts[unit.owner][_session_of(unit)] += 1
        owners = {owner: sessions.total() for owner, sessions in counts.items()}
        drops = {
            (owner, session): count
            for owner, most in _take_from_largest(owners, surplus).items()
            for session, count in _take_from_largest(counts[owner], most).items()
        }
        kept: deque[BatchItem] = deque()
        for unit in self._waiting:
            key = unit.owner, _session_of(unit)
            if unit.future is None and drops.get(key):
                drops[key] -= 1
            else:
                kept.append(unit)
        self._waiting = kept
        self._entry_count -= surplus
        self.dropped_entries += surplus

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Write until closed. Cancelling the task does not stop it, only `aclose` does."""
        task_status.started()
        try:
            with anyio.CancelScope(shield=True) as self._scope:
                while await self._wait():
                    self._writing = True
                    await self._write(self._take())
                    self._writing = False
        finally:
            self._closing = True
            self._stop_timer()
            if self._sync_timer is not None:
                self._sync_timer.cancel()
            if self._entry_count:
                logger.error("%d journal entries are lost: %s", self._entry_count, self.trouble)
            self._give_up(list(self._waiting), _closed_error())
            self._waiting.clear()
            self._entry_count = 0
            self._run_ended.set()

    async def _wait(self) -> bool:
        """Wait for work. Return False when there is none left and the writer is closing."""
        while not ((self._waiting or self._sync_due) and self._wake.is_set()):
            if not self._waiting:
                if self._closing:
                    return False
                self._wake.clear()
            await self._wake.wait()
        return True

    def _take(self) -> list[BatchItem]:
        batch: list[BatchItem] = []
        self._deferred_count = 0
        if self._timer is not None:
            self._stop_timer()
        while self._waiting and len(batch) < BATCH:
            unit = self._waiting.popleft()
            if unit.future is None:
                self._entry_count -= 1
            elif unit.future.cancelled() and not isinstance(unit.work, Change):
                continue
            batch.append(unit)
        if not self._waiting and not self._closing:
            self._wake.clear()
        return batch

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self, units: Sequence[BatchItem]) -> None:
        if not units and not self._sync_due:
            return
        try:
            await self._transact(units)
        except StoreUnavailable as error:
            await self._keep_entries(units, error)
        except Exception as error:
            logger.exception("a batch could not be written")
            self._give_up(units, StoreUnavailable(f"The store failed ({type(error).__name__})."))
        except BaseException:
            self._give_up(units, _closed_error())
            raise
        else:
            self._report_outcomes(units)

    async def _transact(self, units: Sequence[BatchItem]) -> None:
        durable = self._sync_due or any(unit.future is not None for unit in units)
        try:
            await self._run(apply, units, durable)
        except Exception as error:
            if is_database_fault(error):
                raise
            await self._run(isolate, units, durable)
        self._sync_later()

    async def _run(self, run_units: Run, units: Sequence[BatchItem], durable: bool) -> None:
        def work(connection: Connection) -> bool:
            connection.info.pop(NEW_KEYS, None)
            run_units(connection, units, self._compactor)
            return connection.info.pop(outbox.QUEUED, False)

        began_at, error_type = anyio.current_time(), ""
        try:
            has_events = await self._connections.write(work, durable=durable)
        except StoreUnavailable:
            error_type = "failed"
            raise
        finally:
            self.durations.record(anyio.current_time() - began_at, error_type)
        self.trouble = None
        if has_events:
            self.notify_events_queued()

    def notify_events_queued(self) -> None:
        """Wake those that wait for deliveries of events."""
        self.events_queued.set()
        self.events_queued = anyio.Event()

    def _sync_later(self) -> None:
        if not self._connections.unsynced:
            self._sync_due = False
            if self._sync_timer is not None:
                self._sync_timer.cancel()
                self._sync_timer = None
        elif self._sync_timer is None:
            self._sync_timer = asyncio.get_running_loop().call_later(SYNC, self._sync)

    def _sync(self) -> None:
        self._sync_timer = None
        self._sync_due = True
        self._wake.set()

    def _report_outcomes(self, units: Sequence[BatchItem]) -> None:
        for unit in units:
            if unit.future is None:
                if unit.error is not None:
                    self._count_refused(unit.error)
            elif unit.future.done():
                continue
            elif unit.error is None:
                unit.future.set_result(unit.value)
            else:
                unit.future.set_exception(unit.error)
        if self.on_written:
            written = {_session_of(unit) for unit in units if unit.error is None} - {""}
            for report in self.on_written:
                report(written)

    def _count_refused(self, error: Exception) -> None:
        if not isinstance(error, SessionFenced):
            self.dropped_entries += 1
            logger.warning("a journal entry could not be stored: %s", error)

    async def _keep_entries(self, units: Sequence[BatchItem], error: StoreUnavailable) -> None:
        """Fail the units with waiters, keep the others, and let the database rest."""
        self.trouble = str(error)
        self._sync_due = False
        self._sync_later()
        entries = [unit for unit in units if unit.future is None]
        self._give_up([unit for unit in units if unit.future is not None], error)
        if not entries:
            return
        if self._closing and not self._logged_closing:
            self._logged_closing = True
            logger.warning(
                "the stop waits for the store to write %d journal entries: %s", len(entries), error
            )
        self._waiting.extendleft(reversed(entries))
        self._entry_count += len(entries)
        self._limit()
        await self._rest()

    async def _rest(self) -> None:
        if all(unit.future is None for unit in self._waiting):
            self._wake.clear()
        self._stop_timer()
        self._resting = True
        with anyio.move_on_after(RETRY):
            # While the writer closes, the event is set already.
            await (anyio.sleep(RETRY) if self._closing else self._wake.wait())
        self._resting = False
        self._wake.set()

    def _give_up(self, units: Sequence[BatchItem], error: StoreUnavailable) -> None:
        for unit in units:
            if unit.future is None:
                self.dropped_entries += 1
            elif not unit.future.done():
                unit.future.set_exception(error)

    async def aclose(self, seconds: float) -> None:
        """Write the waiting units, for at most `seconds`, and end. Units that still wait then fail. Idempotent.

        Entries that the database refuses are tried again until then.
        """
        self._closing = True
        self._wake.set()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(seconds):
                await self._run_ended.wait()
            if self._scope is not None:
                self._scope.cancel()
            await self._run_ended.wait()


def _take_from_largest(counts: Mapping[str, int], number: int) -> Counter[str]:
    """Take a number of entries from counts, each from the one that is the largest then. Return how many of each."""
    largest = [(-count, key) for key, count in counts.items()]
    heapq.heapify(largest)
    taken = Counter[str]()
    for _ in range(number):
        count, key = largest[0]
        taken[key] += 1
        heapq.heapreplace(largest, (count + 1, key))
    return taken


def _session_of(unit: BatchItem) -> str:
    """Return the id of the session of a unit; empty for one of none."""
    work = unit.work
    return work.session_id if isinstance(work, Change | JournalAppend | CallEntry) else ""


def _closed_error() -> StoreUnavailable:
    return StoreUnavailable("The store is closed.")
