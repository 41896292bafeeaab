"""The store on an SQL database: the queries of its modules as methods, over one read() and one write()."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import anyio

from ..errors import InvalidArgument, StoreUnavailable
from ..journal.entries import CallEntry
from ..metrics.instruments import Durations
from ..policy import JournalLimits
from ..records import (
    BindingRecord,
    JournalRecord,
    NodeRecord,
    ReceiptRecord,
    SessionRecord,
    StateRecord,
)
from . import journal_queries, ownership, queries, rows, session_queries, tool_receipts
from .base import ClaimedSession, Write
from .creation import NewSession
from .database import Connections, Location
from .dialect import RemoteDatabase
from .events import outbox, subscriptions
from .file.store_folder import DataFolder
from .leases import PostgresLeases
from .logins import LoginStore
from .people import audit_queries
from .people.audit_queries import AuditAppend
from .people.store import AccessStore
from .rows import Change, JournalAppend
from .sealing.keyring import Keyring
from .transactions import Queries, Transactions, read_method, write_method
from .writer import Writer

T = TypeVar("T")

CLOSE_SECONDS = 10.0


class StoreOptions(TypedDict, total=False):
    """Options of a store."""

    journal_backlog: int
    """Most journal entries that wait to be written; 10,000 by default. See append()."""
    retention: float
    """Seconds that sessions closed by a restart are kept, a week by default; 0 means for ever."""
    limits: JournalLimits | None
    """The limits of the journal of each session."""
    keyring: Keyring | None
    """The keys of the store. Default: it seals the values of logins only."""


class SQLStore(Queries):
    """Durable sessions. Use it as an async context manager, once per process, and leave it in the same task.

    It carries out each call and refuses only what a fence, a unique name or a missing row forbids; the registry decides.
    Every method may be called from any task. A cancelled caller does not undo a write that the writer has taken. Leaving
    it writes the queued entries, for ten seconds at most, and closes every connection. Every method raises StoreUnavailable
    when the database cannot be reached, and after the store was left.
    """

    def __init__(
        self,
        location: Location,
        *,
        journal_backlog: int = 10_000,
        retention: float = 604_800.0,
        limits: JournalLimits | None = None,
        keyring: Keyring | None = None,
        busy_seconds: float = 5.0,
        replace_damaged: bool = False,
    ) -> None:
        self._location = location
        self.is_durable = location is not None
        """Whether it outlives this process."""
        if keyring is None:
            keyring = Keyring(location.path if isinstance(location, DataFolder) else None)
        self._keyring = keyring
        self.seals_content = keyring.seals_content
        """Whether content of callers is encrypted."""
        self._connections = Connections(
            location, busy_seconds, keyring, replace_damaged=replace_damaged
        )
        self._writer = Writer(self._connections, backlog=journal_backlog, limits=limits)
        self.on_written = self._writer.on_written
        super().__init__(Transactions(self._connections, self._writer))
        self._retention = retention
        self._stack = AsyncExitStack()
        self.access = AccessStore(self.transactions)
        """The rows that say who may do what."""
        self.logins = LoginStore(self.transactions, keyring)
        """The logins of principals at services."""
        self._node: NodeRecord | None = None
        self._is_serving = False
        """Whether this process has adopted sessions, and may serve."""

    @classmethod
    def sqlite(
        cls,
        folder: Path,
        *,
        busy_seconds: float = 5.0,
        replace_damaged: bool = False,
        **options: Unpack[StoreOptions],
    ) -> SQLStore:
        """Return a store in a data folder, which other processes of this machine may share.

        `busy_seconds` is the time to wait for a process that holds the database.

        With `replace_damaged`, a database that is too damaged to be opened, or to be used up to the first `adopt`, is
        renamed and an empty one is created. Without it, such a store cannot be opened.
        """
        location = DataFolder(folder)
        return cls(location, busy_seconds=busy_seconds, replace_damaged=replace_damaged, **options)

    @classmethod
    def memory(cls, **options: Unpack[StoreOptions]) -> SQLStore:
        """Return a store in memory. It is lost when closed, and behaves like any other until then."""
        return cls(None, **options)

    @classmethod
    def remote(
        cls, url: str, *, busy_seconds: float = 5.0, **options: Unpack[StoreOptions]
    ) -> SQLStore:
        """Return a store in a PostgreSQL or MariaDB database, which other processes of this machine may share.

        Raises:
            ValueError: when the URL names no such database.
            StoreUnavailable: when its driver is not installed.
        """
        return cls(RemoteDatabase(url), busy_seconds=busy_seconds, **options)

    @property
    def location(self) -> str:
        """Location of the store, in words for its owner."""
        return self._connections.location

    @property
    def has_leases(self) -> bool:
        """Whether the nodes of the store may have leases: it is a database of PostgreSQL."""
        return isinstance(self._location, RemoteDatabase) and self._location.kind == "postgresql"

    def leases(self) -> PostgresLeases:
        """Return the leases of the nodes, not opened yet. Only a database of PostgreSQL has them."""
        assert isinstance(self._location, RemoteDatabase)
        return PostgresLeases(self._location)

    @property
    def dropped_entries(self) -> int:
        """Number of journal entries given up since the store was opened."""
        return self._writer.dropped_entries

    @property
    def write_durations(self) -> Durations:
        """The times that write transactions took since the store was opened."""
        return self._writer.durations

    def size(self) -> int | None:
        """Return the bytes of its files, None if it has none. Blocks."""
        return self._location.size() if isinstance(self._location, DataFolder) else None

    @property
    def trouble(self) -> str | None:
        """Why the store refuses writes, in one line without secrets; None when it takes them.

        It is known from the last write, and checked again every second while writes fail.
        """
        return self._writer.trouble or self._connections.trouble

    async def __aenter__(self) -> SQLStore:
        self._stack = AsyncExitStack()
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.push_async_callback(self._connections.aclose)
        try:
            await self._connections.open(tasks)
            read, write = self._connections.read, self._connections.write
            await self._before_serving(partial(self._keyring.open, read, write))
            await tasks.start(self._writer.run)
        except BaseException:
            await (
                self._stack.aclose()
            )  # the error must not pass the task group, which would wrap it
            raise
        self._stack.push_async_callback(self._writer.aclose, CLOSE_SECONDS)
        self.transactions.is_open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.transactions.is_open = False
        await self._stack.aclose()

    async def _before_serving(self, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step before serving begins. Damage found by it is treated like damage at opening."""
        try:
            return await step()
        except (StoreUnavailable, InvalidArgument) as error:
            if self._is_serving or not await self._connections.replace_if_damaged(error):
                raise
        if self._node is not None:
            await self.transactions.write(partial(ownership.join, node=self._node))
        return await step()

    # One node: this process.
    async def join(self, node: NodeRecord) -> None:
        """Register this process as a node. Called once, before any claim."""
        work = partial(ownership.join, node=node)
        await self._before_serving(lambda: self.transactions.write(work))
        self._node = node

    leave = write_method(ownership.declare_dead)

    async def nodes(self) -> list[NodeRecord]:
        """Return the nodes that are not dead."""
        return await self._before_serving(lambda: self.transactions.read(queries.nodes))

    async def declare_dead(self, node: str) -> bool:
        """Mark a node dead, permanently. Call it only on proof. Return False when it was dead already."""
        return await self._before_serving(lambda: self.leave(node))

    async def adopt(self, dead: Sequence[str], now: float, heir: str | None = None) -> list[str]:
        """Release the sessions of dead nodes in one transaction, and return the ids of those it paused; see ownership."""
        work = partial(ownership.adopt, dead=dead, now=now, retention=self._retention, heir=heir)
        session_ids = await self._before_serving(lambda: self.transactions.write(work))
        self._is_serving = True
        return session_ids

    async def claim(self, session_id: str, node: str, now: float) -> ClaimedSession | None:
        """Make `node` the owner of a session that may be claimed, and return its records; see ownership.claim()."""
        work = partial(
            ownership.claim, session_id=session_id, node=node, now=now, retention=self._retention
        )
        return await self.transactions.write(work)

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
        row = rows.session_row(session.model_copy(update={"epoch": 1}))
        binding_rows = [rows.binding_row(binding) for binding in bindings]
        receipt_row = None if receipt is None else rows.receipt_row(receipt)
        await self.transactions.write(
            NewSession(row, rows.state_row(state), binding_rows, per_owner, receipt_row, limit_name)
        )

    get = read_method(queries.get)
    find = read_method(queries.find)
    find_closed = read_method(queries.find_closed)
    list_sessions = read_method(session_queries.page)
    usage = read_method(queries.usage)
    sizes = read_method(queries.sizes)
    ids = read_method(queries.ids)
    counts = read_method(queries.counts)
    bindings = read_method(queries.bindings)
    state = read_method(queries.state)
    state_versions = read_method(queries.state_versions)
    snapshot = read_method(queries.snapshot)
    due = read_method(queries.due)
    next_due = read_method(queries.next_due)
    purge = write_method(ownership.purge)

    async def write(self, write: Write) -> None:
        """Apply one unit of change, durable on return. Writes that wait together share one transaction.

        Raises:
            SessionFenced: when the session is not owned by `write.node` with `write.epoch`.
            NameTaken: when it sets a name that another open session of the owner has.
        """
        await self.transactions.write(rows.to_change(write))

    # The journal, the receipts and the summary of a session.
    journal = read_method(queries.journal)
    history = read_method(journal_queries.page)
    journal_counts = read_method(journal_queries.journal_counts)
    summary = read_method(journal_queries.summary)
    receipt = read_method(journal_queries.receipt)
    receipts = read_method(journal_queries.receipts)
    all_receipts = read_method(journal_queries.all_receipts)
    delete_expired_receipts = write_method(journal_queries.delete_expired_receipts)
    started_calls = read_method(journal_queries.started_calls)
    open_calls = read_method(journal_queries.open_calls)
    creation_receipt = read_method(tool_receipts.creation_receipt)
    start_receipt = write_method(tool_receipts.start)
    end_receipt = write_method(tool_receipts.end)

    def append(self, entry: JournalRecord, node: str, owner: str = "") -> None:
        """Queue one journal entry; never blocks. It is written within 50 ms, fenced like a write, but silently.

        Once written it survives the end of the process, and a second later a power cut. Beyond the backlog the oldest
        entries of the `owner` with the most, the key of a principal, are dropped and counted.
        """
        row = rows.journal_row(entry)
        self._writer.append(JournalAppend(entry.session_id, node, entry.epoch, row), owner)

    def append_call(self, entry: CallEntry, owner: str) -> None:
        """Queue the entry of a call, as `append` does. Its values are computed soon, in any thread."""
        self._writer.append(entry, owner)

    def append_end(
        self, entry: JournalRecord, receipt: ReceiptRecord, node: str, owner: str
    ) -> None:
        """Queue the end of a started call, with its receipt, as `append` queues an entry."""
        change = Change(
            entry.session_id,
            node,
            entry.epoch,
            ended_entries=(rows.journal_row(entry),),
            receipts=(rows.receipt_row(receipt),),
        )
        self._writer.append(change, owner)

    def append_receipt(self, receipt: ReceiptRecord, owner: str, *, forget: bool = False) -> None:
        """Queue the change of end_receipt(), as `append` queues an entry."""
        self._writer.append(partial(tool_receipts.end, receipt=receipt, forget=forget), owner)

    async def flush(self) -> None:
        """Return when everything appended before is durable."""
        if not self.transactions.is_open or not self._writer.idle:
            await self.transactions.write(queries.do_nothing)

    # Events of sessions.
    events = read_method(outbox.page)
    put_subscription = write_method(subscriptions.put)
    delete_subscription = write_method(subscriptions.delete_one)
    delete_expired_subscriptions = write_method(subscriptions.delete_expired)
    is_verified_url = read_method(subscriptions.is_verified)
    find_subscription = read_method(subscriptions.find)
    polled_subscriptions = read_method(subscriptions.polled)
    add_polled = write_method(outbox.add_polled)
    add_limit = write_method(outbox.add_limit)
    due_hosts = read_method(subscriptions.due_hosts)
    claim_deliveries = write_method(subscriptions.claim)
    finish_delivery = write_method(subscriptions.finish)
    retry_delivery = write_method(subscriptions.retry)

    @property
    def events_queued(self) -> anyio.Event:
        """Set, and replaced by another one, when this process has queued deliveries."""
        return self._writer.events_queued

    def notify_events_queued(self) -> None:
        """Set `events_queued`: there may be deliveries to look for."""
        self._writer.notify_events_queued()

    # The audit log.
    audit_page = read_method(audit_queries.page)
    audit_head = read_method(audit_queries.head)

    async def write_audit(self, document: str) -> None:
        """Append an entry to the audit log, durable on return. See sessions/principals/audit_log.py."""
        await self.transactions.write(AuditAppend(document))

    def append_audit(self, document: str, owner: str) -> None:
        """Queue an entry of the audit log, as `append` queues an entry."""
        self._writer.append(AuditAppend(document), owner)

    # Health.
    def free_bytes(self) -> int | None:
        """Return the free bytes on the disk of the data folder, None without such a folder."""
        return self._connections.free_bytes()

    async def check(self) -> list[str]:
        """Return the faults of the database, one line each; empty when it is sound."""
        try:
            return await self.transactions.read(queries.check)
        except StoreUnavailable as error:
            return [str(error)]

    async def check_writes(self) -> str | None:
        """Write without a change. Return why the database refuses that, None when it does not."""
        try:
            await self.transactions.write(queries.touch)
        except StoreUnavailable as error:
            return str(error)
        return self.trouble
