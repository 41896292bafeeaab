"""The interface between the sessions of this node and their storage.

Above it is the registry, which decides. Below it is one SQL implementation for every database. A store carries out each call
and refuses only what a fence, a unique name or a missing row forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from ..audit.entry import AuditHead, AuditRow
from ..cluster.leases import Leases
from ..journal.entries import CallEntry
from ..policy import JournalLimits
from ..records import (
    BindingRecord,
    HistoryFilter,
    JournalCounts,
    JournalRecord,
    NodeRecord,
    ReceiptRecord,
    SessionFilter,
    SessionRecord,
    SnapshotRecord,
    StateRecord,
    SummaryRecord,
)
from .people.base import AccessRecords

RESTARTED: Final = "the server was restarted"
"""The `last_error` of a connection that was lost with its process, as callers see it."""


@dataclass(slots=True)
class Write:
    """One unit of durable change to one session, applied as a whole or not at all.

    It is fenced: it takes effect only while `node` owns the session with this `epoch`. `session` maps column names of
    SessionRecord to new values (`timeouts`, `metadata` and `services` as their models or plain JSON values). Setting
    `node` to None there releases the session. Bindings, state and snapshots are upserted; the last two snapshots per
    binding are kept. `unbind` names services whose binding and snapshots are deleted. `ended` are entries that replace
    those written as `started`; receipts are upserted, and `forget` names operations whose receipts are deleted.
    """

    session_id: str
    node: str | None
    """The node that owns the session; None for a session without an owner, such as a closed one."""
    epoch: int
    session: dict[str, Any] = field(default_factory=dict[str, Any])
    bindings: Sequence[BindingRecord] = ()
    unbind: Sequence[str] = ()
    state: StateRecord | None = None
    snapshots: Sequence[SnapshotRecord] = ()
    journal: Sequence[JournalRecord] = ()
    ended_entries: Sequence[JournalRecord] = ()
    receipts: Sequence[ReceiptRecord] = ()
    forget: Sequence[str] = ()
    summary: SummaryRecord | None = None


@dataclass(frozen=True, slots=True)
class ClaimedSession:
    """A session with everything needed to open it, read after it was claimed."""

    session: SessionRecord
    bindings: list[BindingRecord]
    state: StateRecord
    last_seq: int
    """The highest journal position in use, 0 for none."""


class Store(Protocol):
    """Durable sessions. Opened once per process as an async context manager, closed in the same task.

    Every method may be called from any task. A cancelled caller does not undo a write that the writer has taken. Closing
    writes the queued entries, within a bound. Every method raises StoreUnavailable when the database cannot be reached.
    """

    async def __aenter__(self) -> Store: ...
    async def __aexit__(self, *exc: object) -> None: ...

    # One node: this process.
    async def join(self, node: NodeRecord) -> None:
        """Register this process as a node. Called once, before any claim."""
        ...

    async def leave(self, node: str) -> None:
        """Declare the node itself dead: nothing of it is left running."""
        ...

    async def nodes(self) -> list[NodeRecord]:
        """Return the nodes that are not dead."""
        ...

    def leases(self) -> Leases:
        """Return the leases of the nodes, not opened yet. Only a database of PostgreSQL has them."""
        ...

    async def declare_dead(self, node: str) -> bool:
        """Mark a node dead, permanently. Call it only on proof. Return False when it was dead already."""
        ...

    async def adopt(self, dead: Sequence[str], now: float) -> list[str]:
        """Pause every session that dead nodes left open (T20) and return their ids.

        Sessions left `creating` are closed with reason `server_restart`, `closing` ones are closed; those are not
        returned. The epoch rises, the owner becomes None, `due_at` follows the paused timeout, open bindings become
        `lost`, and each transition is in the journal. One transaction, in time proportional to what it changes.
        """
        ...

    # Sessions.
    async def create(
        self,
        session: SessionRecord,
        state: StateRecord,
        bindings: Sequence[BindingRecord],
        *,
        per_owner: int,
        limit_name: str = "limits.sessions_per_principal",
        receipt: ReceiptRecord | None = None,
    ) -> None:
        """Insert a new session owned by `session.node` at epoch 1, durable on return.

        `receipt` is the receipt of the call that creates the session, if it has an operation id. It is inserted too.

        Raises:
            OperationBusy: when a session of the owner already has the receipt of a creating call with that id.
            NameTaken: when an open session of the same owner and namespace has the name. Closed ones do not count.
            SessionLimit: when the owner has `per_owner` open sessions already (0: no limit). It names the limit.
        """
        ...

    async def get(self, session_id: str, owner: str | None = None) -> SessionRecord | None:
        """Return a session; with `owner`, only one of that owner: the row of another owner is not read."""
        ...

    async def find(self, owner: str, namespace: str, name: str) -> SessionRecord | None:
        """Return the open session of that name, None if there is none."""
        ...

    async def find_closed(self, owner: str, namespace: str, name: str) -> SessionRecord | None:
        """Return the session of that name that was closed last, None if there is none."""
        ...

    async def list_sessions(
        self, session_filter: SessionFilter
    ) -> tuple[list[SessionRecord], str | None]:
        """Return a page in the order of the filter, and the cursor of the next page or None."""
        ...

    async def usage(self, owner: str) -> int:
        """Return the approximate bytes of an owner's sessions, closed ones included, in time proportional to them."""
        ...

    async def sizes(self, session_ids: Sequence[str]) -> dict[str, int]:
        """Return the approximate bytes of each of some sessions that has any."""
        ...

    async def ids(self, owner: str) -> list[str]:
        """Return the ids of all sessions of an owner, closed ones included."""
        ...

    async def creation_receipt(self, owner: str, operation_id: str) -> ReceiptRecord | None:
        """Return the receipt of the call with a creation_id() that created a session of an owner."""
        ...

    def free_bytes(self) -> int | None:
        """Return the free bytes on the disk of the data folder, None without such a folder."""
        ...

    async def counts(self, owner: str | None = None) -> dict[str, int]:
        """Return the number of sessions by status, of all owners or of one."""
        ...

    async def claim(self, session_id: str, node: str, now: float) -> ClaimedSession | None:
        """Make `node` the owner, if the session is open and has no owner, a dead one, or `node` itself.

        One statement raises the epoch. Returns None when another node owns it, or it is closed or gone. Concurrent
        claims have one winner.
        """
        ...

    async def write(self, write: Write) -> None:
        """Apply one unit of change, durable on return. Writes that wait together share one transaction.

        Raises:
            SessionFenced: when the session is not owned by `write.node` with `write.epoch`.
            NameTaken: when it sets a name that another open session of the owner has.
        """
        ...

    def append(self, entry: JournalRecord, node: str, owner: str = "") -> None:
        """Queue one journal entry; never blocks. It is written within 50 ms, fenced like a write, but silently.

        Once written it survives the end of the process, and a second later a power cut.

        At most `journal_backlog` entries wait (default 10,000); beyond that the oldest of the `owner` with the most, the key
        of a principal, are dropped and counted.
        """
        ...

    def append_call(self, entry: CallEntry, owner: str) -> None:
        """Queue the entry of a call, as `append` does. Its values are computed soon, in any thread."""
        ...

    def append_end(
        self, entry: JournalRecord, receipt: ReceiptRecord, node: str, owner: str
    ) -> None:
        """Queue the end of a started call, with its receipt, as `append` queues an entry."""
        ...

    async def start_receipt(self, receipt: ReceiptRecord) -> ReceiptRecord | None:
        """Insert the receipt of a starting call, durable on return. Not fenced: the first call claims the id.

        Returns the receipt that the session already has for this id; then nothing was written.

        Raises:
            SessionNotFound: when there is no such session.
        """
        ...

    async def end_receipt(self, receipt: ReceiptRecord, *, forget: bool = False) -> None:
        """End a receipt that start_receipt() or create() began, or delete it; durable on return. Not fenced."""
        ...

    def append_receipt(self, receipt: ReceiptRecord, owner: str, *, forget: bool = False) -> None:
        """Queue the change of end_receipt(), as `append` queues an entry."""
        ...

    async def write_audit(self, document: str) -> None:
        """Append an entry to the audit log, durable on return. See sessions/audit."""
        ...

    def append_audit(self, document: str, owner: str) -> None:
        """Queue an entry of the audit log, as `append` queues an entry."""
        ...

    async def flush(self) -> None:
        """Return when everything appended before is durable."""
        ...

    # Reading.
    async def bindings(self, session_id: str) -> list[BindingRecord]: ...

    async def state(self, session_id: str) -> StateRecord | None: ...

    async def state_versions(self, session_ids: Sequence[str]) -> dict[str, int]:
        """Return the versions of the states of those sessions that exist."""
        ...

    async def snapshot(self, session_id: str, service: str) -> SnapshotRecord | None:
        """Return the newest snapshot of a binding."""
        ...

    async def journal(
        self, session_id: str, *, last: int = 100, after: int = 0
    ) -> list[JournalRecord]:
        """Return the last entries with `seq > after`, oldest first."""
        ...

    async def history(self, session_id: str, history_filter: HistoryFilter) -> list[JournalRecord]:
        """Return the newest entries that match a filter, oldest first."""
        ...

    async def journal_counts(self, session_id: str) -> JournalCounts:
        """Return the counts of a session's calls by tool and outcome, and of its other entries, compacted ones included."""
        ...

    async def receipt(self, session_id: str, operation_id: str) -> ReceiptRecord | None: ...

    async def receipts(self, session_id: str) -> tuple[int, int]:
        """Return the number of a session's receipts, and the bytes of their results."""
        ...

    async def all_receipts(self, session_id: str) -> list[ReceiptRecord]:
        """Return every receipt of a session, in the order of its calls."""
        ...

    async def started_calls(self, session_id: str) -> list[tuple[ReceiptRecord, JournalRecord]]:
        """Return the calls with an operation id whose end is not recorded: the receipt and the journal entry of each."""
        ...

    async def summary(self, session_id: str) -> SummaryRecord | None: ...

    async def audit_page(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Return the next entries of the audit log after a position, oldest first."""
        ...

    async def audit_head(self) -> AuditHead:
        """Return the end of the audit log, as it is kept beside the entries."""
        ...

    # Time.
    async def due(self, now: float, limit: int = 100) -> list[SessionRecord]:
        """Return ownerless sessions with `due_at <= now`, the most overdue first (paused: T10, closed: T19)."""
        ...

    async def next_due(self) -> float | None:
        """Return the earliest `due_at` of an ownerless session."""
        ...

    async def purge(self, session_id: str) -> bool:
        """Delete all data of a closed session in one transaction. Return False when it is open or gone."""
        ...

    @property
    def access(self) -> AccessRecords:
        """The rows that say who may do what."""
        ...

    # Health.
    @property
    def dropped_entries(self) -> int:
        """Number of journal entries given up since the store was opened."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why the store refuses writes, in one line without secrets; None when it takes them.

        It is known from the last write, and checked again every second while writes fail.
        """
        ...

    async def check(self) -> list[str]:
        """Return the faults of the database, one line each; empty when it is sound."""
        ...


class DeferredStore:
    """A `Store` that imports and builds its implementation when it is opened, and passes every call to it.

    So a process can list its tools before it imports a database library. Opening it raises what `build` raises.
    """

    def __init__(self, build: Callable[[], Store]) -> None:
        self._build = build

    async def __aenter__(self) -> Self:
        self._store = self._build()
        await self._store.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._store.__aexit__(*exc)

    def __getattr__(self, name: str) -> Any:
        if name == "_store":
            raise AttributeError("the store is not open")
        value = getattr(self._store, name)
        if callable(value):
            # The next call reaches the method without this one; a property has to be read again.
            setattr(self, name, value)
        return value


__all__ = ["RESTARTED", "DeferredStore", "JournalLimits", "ClaimedSession", "Store", "Write"]
