"""One session while this node owns it: its record, its status, its bindings and what is in flight.

Only save() does I/O here. The registry decides what happens to a session, the connector opens and closes its connections,
the router runs its calls.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

import anyio

from ..clock import Clock
from ..errors import HumanInControl, SessionBusy, SessionFenced, StoreUnavailable
from ..journal.entries import transition_entry
from ..journal.redaction import Redactor
from ..lifecycle import TABLE, Event, Status, Transition
from ..metrics.instruments import Metrics
from ..one_line import plural
from ..records import (
    LOCAL,
    BindingRecord,
    JournalRecord,
    Principal,
    ReceiptRecord,
    SessionDriver,
    SessionRecord,
    SnapshotRecord,
    StateRecord,
    SummaryRecord,
)
from ..services import SessionView
from ..store.base import Write
from ..times import timestamp
from ..views import describe, describe_binding, expiry
from .binding import Binding
from .connection import CallActivity, HandedOverCalls
from .quota import written_bytes

if TYPE_CHECKING:
    from ..store.sql import SQLStore
    from .quota import Quota

logger = logging.getLogger("statehold.sessions")

client_address: Final = ContextVar("client_address", default="")
"""The network address from which the current request came, for the log; empty for one that came otherwise."""

logged_session: ContextVar[LiveSession | None] = ContextVar("logged_session", default=None)
"""The session of the current call, for the log."""

_QUIET = frozenset({Event.CALL_ADMITTED, Event.CALLS_SETTLED, Event.STATE_UPDATED})
"""Events that the journal's entries of calls and of state already show."""

_LOGGED: Final[Mapping[Event, str]] = {
    Event.OPENED: "created",
    Event.OPEN_FAILED: "was not created",
    Event.IDLE_TIMED_OUT: "paused after its idle time",
    Event.PAUSE_REQUESTED: "paused",
    Event.ADOPTED: "paused",
    Event.RESUMED: "resumed",
    Event.RECOVERED: "recovered",
    Event.RELEASED: "closed",
}
"""The words of the log for the events that an operator follows. The connector logs a loss."""

MAX_SNAPSHOTS: Final = 2
"""Snapshots of one service that the store keeps."""
LOGGED_CAUSE: Final = 300
"""Characters of a cause that the log holds."""

REDACTOR = Redactor()


def _nothing(session: LiveSession) -> None: ...


class UnconfirmedUpdates:
    """The updates of a state since the last failed write. When the next write fails, all of them fail."""

    error: SessionBusy | StoreUnavailable | None = None


class LiveSession:
    """A session this node owns. It lives from create or claim until it is closed, or paused without a live connection.

    Everything but save() is synchronous, so a caller that does not await sees one consistent session. Changes that take
    time (pause, resume, close, bind) hold `changing`; a call and the recovery of a connection do not.

    `on_deadline` is called after each transition that may bring the session's next deadline nearer. `on_fenced` is called
    once, when a write was refused because another node owns the session. `closes_idle`: it is closed after its idle time,
    instead of being paused.
    """

    def __init__(
        self,
        record: SessionRecord,
        state: StateRecord,
        *,
        store: SQLStore,
        node: str,
        clock: Clock,
        last_seq: int = 0,
        redactor: Redactor = REDACTOR,
        quota: Quota | None = None,
        closes_idle: bool = False,
        metrics: Metrics | None = None,
        on_deadline: Callable[[LiveSession], None] = _nothing,
        on_fenced: Callable[[LiveSession], None] = _nothing,
    ) -> None:
        self.id: Final = record.id
        self.record = record
        self.state = state
        self.status: Status = record.status
        self.bindings: dict[str, Binding] = {}
        self.in_flight = 0
        self.activity = CallActivity()
        self.calls: set[anyio.CancelScope] = set()
        self.idle_since = record.used_at
        self.used_saved_at = record.used_at
        self.changing = anyio.Lock()
        self._quiet: anyio.Event | None = None
        self.creation_ended = anyio.Event()
        if self.status is not Status.CREATING:
            self.creation_ended.set()
        self.ownership_ended = anyio.Event()
        """Set when this node no longer holds the session."""
        self.fenced = False
        self.released = False
        """Set when this node gives up the session on its own: nothing more is written for it."""
        self.pausing = False
        self.has_older_caller = False
        """See SessionView."""
        self.revising = anyio.Lock(fast_acquire=True)
        """Held while a newer state is derived from the current one, so that no update is based on an older state."""
        self.durable_state = state
        """The newest state that is durable."""
        self.notice: str | None = record.control.notice
        """Notice about the session as a whole, for the next result."""
        self.is_unreported = False
        """Whether no answer has told its caller of it yet, because the caller did not create it itself."""
        self.has_human_driver = record.control.driver is SessionDriver.HUMAN
        """Whether a person drives it, or is about to: calls are refused."""
        self.control_change = anyio.Event()
        """Set and replaced when the lease of control changes."""
        self.tasks = HandedOverCalls()
        self.is_left = False
        """Whether the next process goes on with its tasks: nothing of them ends here."""
        self.started_entries: set[int] = set()
        """The `seq` of the journal entries of calls in flight whose start is in the journal."""
        self.stored_receipts: dict[bool, tuple[int, int]] = {}
        """Number of receipts in the store and the bytes of their results, by whether they expire; empty before the query."""
        self._redactor = redactor
        self.quota = quota
        """Counts the bytes that it stores, for its owner."""
        self._closes_idle = closes_idle
        self._metrics = metrics
        self._on_deadline = on_deadline
        self._on_fenced = on_fenced
        self._snapshot_bytes: dict[str, list[int]] = {}
        """The sizes of the snapshots that this process has stored and that the store keeps, by service."""
        self._store = store
        self._node = node
        self._clock = clock
        self._seq = last_seq
        self._free: list[int] = []
        """Positions in the journal below `_seq` that no entry has; a heap."""
        self._entries: list[JournalRecord] = []
        self._writing_state = anyio.Lock()
        self._wrote_state = anyio.Event()
        """Set and replaced when a write of the state ends."""
        self._updates = UnconfirmedUpdates()

    def __repr__(self) -> str:
        return f"<LiveSession {self.id} {self.status} in_flight={self.in_flight} epoch={self.record.epoch}>"

    @property
    def quiet(self) -> anyio.Event:
        """An event that is set as soon as nothing is in flight. Most calls end without a task that waits for it."""
        event = self._quiet = self._quiet or anyio.Event()
        self.record_calls(self.in_flight)
        return event

    def record_calls(self, count: int) -> None:
        """Set the number of calls in flight."""
        self.in_flight = count
        if not count and self._quiet is not None:
            self._quiet.set()
            self._quiet = None

    @property
    def generation(self) -> int:
        """The highest generation among its bindings."""
        return max((b.record.generation for b in self.bindings.values()), default=0)

    @property
    def ends(self) -> bool:
        """Whether it is closed, or being closed."""
        return self.status in (Status.CLOSING, Status.CLOSED)

    @property
    def holds_connection(self) -> bool:
        return any(
            (b.live or b.opening) and b.service.scope == "session" for b in self.bindings.values()
        )

    def use(self) -> str | None:
        """Return how it is in use, in words; None when it is not.

        Uses are calls in flight (streams, and calls that wait for an answer of their caller, are calls), a person in
        control, and work of its own connections that a pause would lose, such as a download. A person who only looks on
        is no use: pictures go on with the next call.
        """
        if self.in_flight:
            return f"{plural(self.in_flight, 'call')} in flight"
        if self.has_human_driver:
            return "a person has control"
        for binding in self.bindings.values():
            work = binding.live.busy if binding.live is not None else None
            if work is not None and binding.service.scope == "session":
                return f"{binding.service.name}: {work}"
        return None

    @property
    def saveable(self) -> bool:
        """Whether its services save their connections, as far as is known before they try."""
        return all(
            b.service.pause == "snapshot" and b.save_error is None
            for b in self.bindings.values()
            if b.live is not None and b.service.scope == "session"
        )

    def require_agent(self) -> None:
        """Do nothing unless a person drives it.

        Raises:
            HumanInControl: a person does.
        """
        if self.has_human_driver:
            raise HumanInControl(self.id, self.record.control.reason or "")

    def notify_control_change(self) -> None:
        """Wake those that wait for a change of control."""
        self.control_change.set()
        self.control_change = anyio.Event()

    def view(self, generation: int) -> SessionView:
        record = self.record
        return SessionView(
            record.id,
            record.name,
            record.namespace,
            record.owner,
            generation,
            record.metadata,
            record.epoch,
            self.has_older_caller,
        )

    @property
    def last_seq(self) -> int:
        """The position of its newest entry in the journal."""
        return self._seq

    def next_seq(self) -> int:
        """Return the position of a new entry: a free one, or the next."""
        if self._free:
            return heappop(self._free)
        self._seq += 1
        return self._seq

    def free_seq(self, seq: int) -> None:
        """Take back the position of a refused entry, so that the journal has no gap."""
        heappush(self._free, seq)

    def apply(self, event: Event, *, cause: str | None = None) -> Transition:
        """Take one row of the lifecycle table; the next save() makes it durable.

        Raises:
            IllegalTransition: the table has no such row.
        """
        row = TABLE[self.status, event]
        assert row.target is not None
        now = self._clock.now()
        if event not in _QUIET:
            if self._metrics is not None:
                self._metrics.transitions.add(event.value)
            source = None if row.source is None else row.source.value
            self._entries.append(
                transition_entry(
                    session_id=self.id,
                    epoch=self.record.epoch,
                    seq=self.next_seq(),
                    at=now,
                    code=row.code,
                    event=event.value,
                    source=source,
                    target=row.target.value,
                    cause=cause,
                    redactor=self._redactor,
                )
            )
        if event in _LOGGED and logger.isEnabledFor(logging.INFO):
            self._log(_LOGGED[event], cause, with_address=event is Event.OPENED)
        self.status = row.target
        self.record.status_at = now
        if row.target is Status.IDLE:
            self.idle_since = now
        if row.source is Status.CREATING:
            self.creation_ended.set()
        if event not in (Event.CALL_ADMITTED, Event.CALLS_SETTLED):
            self._on_deadline(self)
        return row

    @property
    def logged(self) -> tuple[str, str | None]:
        """Its id and name for the log: that of a sealed store has no text of callers."""
        return self.id, None if self._store.seals_content else self.record.name

    def _log(self, verb: str, cause: str | None, *, with_address: bool) -> None:
        name = "" if self.logged[1] is None else f" {json.dumps(self.logged[1])}"
        owner = Principal.of_key(self.record.owner)
        whose = "" if owner.key == LOCAL.key else f" of {json.dumps(owner.words)}"
        address = client_address.get() if with_address else ""
        whence = f" from {address}" if address else ""
        reason = ""
        if cause is not None and not self._store.seals_content:
            reason = f": {json.dumps(self._redactor.text(cause, LOGGED_CAUSE))}"
        token = logged_session.set(self)
        logger.info("session %s%s%s %s%s%s", self.id, name, whose, verb, whence, reason)
        logged_session.reset(token)

    async def save(
        self,
        *,
        bindings: Sequence[BindingRecord] = (),
        unbind: Sequence[str] = (),
        state: StateRecord | None = None,
        snapshots: Sequence[SnapshotRecord] = (),
        journal: Sequence[JournalRecord] = (),
        ended_entries: Sequence[JournalRecord] = (),
        receipts: Sequence[ReceiptRecord] = (),
        forget: Sequence[str] = (),
        summary: SummaryRecord | None = None,
        **columns: Any,
    ) -> None:
        """Make changes and the transitions applied since the last save durable; not interrupted by cancellation.

        Raises:
            SessionBusy: another node owns the session by now. Its connections here are to be dropped.
            StoreUnavailable: nothing was written; the transitions wait for the next save.
        """
        if self.fenced or self.released:
            raise self._lost_error()
        self.released = "node" in columns and columns["node"] is None
        entries, self._entries = self._entries, []
        write = Write(
            self.id,
            self._node,
            self.record.epoch,
            session=columns,
            bindings=bindings,
            unbind=unbind,
            state=state,
            snapshots=snapshots,
            journal=[*entries, *journal],
            ended_entries=ended_entries,
            receipts=receipts,
            forget=forget,
            summary=summary,
            at=self._clock.now(),
        )
        try:
            with anyio.CancelScope(shield=True):
                await self._store.write(write)
        except SessionFenced:
            if not self.fenced:
                self.fenced = True
                self._on_fenced(self)
            raise self._lost_error() from None
        except BaseException:
            self.released = False
            self._entries = entries + self._entries
            raise
        self._count_written(write)
        if state is not None:
            self.durable_state = state
        for name, value in columns.items():
            setattr(self.record, name, value)

    def _count_written(self, write: Write) -> None:
        """Count the bytes of a write. Those of states and receipts are counted before they are written."""
        if self.quota is None:
            return
        growth = written_bytes(write)
        for snapshot in write.snapshots:
            sizes = self._snapshot_bytes.setdefault(snapshot.service, [])
            sizes.append(len(snapshot.data))
            growth += sizes[-1] - (sizes.pop(0) if len(sizes) > MAX_SNAPSHOTS else 0)
        self.quota.count(self.record.owner, growth)

    def propose_state(self, state: StateRecord) -> UnconfirmedUpdates:
        """Set a newer state. It is durable only when store_state() has returned; later updates build on it."""
        self.state = state
        return self._updates

    async def store_state(self, state: StateRecord, updates: UnconfirmedUpdates) -> StateRecord:
        """Make a proposed state durable, together with states proposed after it, in one write.

        When a write fails, every update that builds on it fails too, and the last durable state holds again.
        """
        async with self._writing_state:
            try:
                if updates.error is not None:
                    raise updates.error
                if self.durable_state.version < state.version:
                    await self.save(state=self.state)
            except (SessionBusy, StoreUnavailable) as error:
                if updates.error is None:
                    self.state = self.durable_state
                    updates.error, self._updates = error, UnconfirmedUpdates()
                raise
            finally:
                self._wrote_state.set()
                self._wrote_state = anyio.Event()
        return state

    async def wait_for_store(self) -> bool:
        """Wait until the current state is durable. Return False when it was withdrawn because a write failed."""
        state, updates = self.state, self._updates
        while self.durable_state.version < state.version and updates.error is None:
            if self._writing_state.locked():
                await self._wrote_state.wait()
            else:
                # The task that proposed it was cancelled.
                with suppress(SessionBusy, StoreUnavailable):
                    await self.store_state(state, updates)
        return updates.error is None

    def _lost_error(self) -> SessionBusy:
        cause = "given up" if self.released else "taken over by another process"
        return SessionBusy(f"The session was {cause}.", session_id=self.id)

    def stderr_tails(self) -> dict[str, str]:
        """Return the last lines that each of its connections wrote to stderr, by service; ended ones included."""
        tails = {
            name: b.last_live.stderr_tail() for name, b in self.bindings.items() if b.last_live
        }
        return {name: tail for name, tail in tails.items() if tail}

    def deadline(self) -> float | None:
        """Return when Deadlines must look at it next, given its current status; None for never."""
        times = self.record.timeouts
        deadlines: list[float] = []
        if self.record.control.expires_at is not None:
            deadlines.append(self.record.control.expires_at)
        if self.record.lifetime_ends_at is not None:
            deadlines.append(self.record.lifetime_ends_at)
        if self.status is Status.IDLE and times.idle:
            deadlines.append(self.idle_since + times.idle)
        if self.status is Status.ACTIVE and times.idle:
            # Not later than after its last call, so that the end of a call needs no look at the deadlines.
            deadlines.append(self._clock.now() + times.idle)
        if self.status is Status.PAUSED and times.paused:
            deadlines.append(max(self.record.status_at, self.idle_since) + times.paused)
        return min(deadlines, default=None)

    def summary(self) -> dict[str, Any]:
        """Return the value of `_meta["statehold/session"]`."""
        return {
            "id": self.id,
            "name": self.record.name,
            "status": self.status.value,
            "generation": self.generation,
            "expires_at": timestamp(
                expiry(self.record, self.status, self.idle_since, closes_idle=self._closes_idle)
            ),
            "epoch": self.record.epoch,
        }

    def info(self) -> dict[str, Any]:
        """Return everything a caller may know of it, as JSON."""
        fields = describe(self.record, self.status, self.idle_since, closes_idle=self._closes_idle)
        fields["in_flight"] = self.in_flight
        fields["generation"] = self.generation
        fields["state_version"] = self.state.version
        fields["services"] = [
            describe_binding(b.record, opening=b.live is not None and b.live.phase == "opening")
            for b in self.bindings.values()
        ]
        return fields
