"""The store on an SQL database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import anyio

from ..audit.entry import AuditHead, AuditRow
from ..cluster.leases import Leases
from ..errors import InvalidArgument, StoreUnavailable
from ..journal.entries import CallEntry
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
from . import (
    journal_queries,
    ownership,
    queries,
    rows,
    session_queries,
    tool_receipts,
)
from .base import ClaimedSession, JournalLimits, Write
from .creation import NewSession
from .database import Connections, Location
from .dialect import RemoteDatabase
from .file.folder import DataFolder
from .leases import PostgresLeases
from .people import audit_queries
from .people.audit_queries import AuditAppend
from .people.store import AccessStore
from .rows import Change, JournalAppend
from .transactions import Transactions
from .writer import Writer

T = TypeVar("T")

CLOSE_SECONDS = 10.0


class SQLStore:
    """A `Store` over kept connections and a group-commit writer; see `Store` for the contract of each method.

    Use it as an async context manager, once. Leaving it writes the queued entries, for ten seconds at most, and closes every
    connection. Afterwards every method raises StoreUnavailable.
    """

    def __init__(
        self,
        location: Location,
        *,
        journal_backlog: int = 10_000,
        retention: float = 604_800.0,
        busy_seconds: float = 5.0,
        limits: JournalLimits | None = None,
        replace_damaged: bool = False,
    ) -> None:
        self._location = location
        self._connections = Connections(location, busy_seconds, replace_damaged=replace_damaged)
        self._writer = Writer(self._connections, backlog=journal_backlog, limits=limits)
        self._retention = retention
        self._stack = AsyncExitStack()
        self._transactions = Transactions(self._connections, self._writer)
        self.access = AccessStore(self._transactions)
        self._node_row: rows.Row | None = None
        self._is_serving = False
        """Whether this process has adopted sessions, and may serve."""

    @classmethod
    def sqlite(
        cls,
        folder: Path,
        *,
        journal_backlog: int = 10_000,
        retention: float = 604_800.0,
        busy_seconds: float = 5.0,
        limits: JournalLimits | None = None,
        replace_damaged: bool = False,
    ) -> SQLStore:
        """Return a store in a data folder, which other processes of this machine may share.

        `retention` is the time in seconds that sessions closed by a restart are kept; 0 means for ever. `busy_seconds` is
        the time to wait for a process that holds the database. `limits` bound the journal of each session.

        With `replace_damaged`, a database that is too damaged to be opened, or to be used up to the first `adopt`, is
        renamed and an empty one is created. Without it, such a store cannot be opened.
        """
        return cls(
            DataFolder(folder),
            journal_backlog=journal_backlog,
            retention=retention,
            busy_seconds=busy_seconds,
            limits=limits,
            replace_damaged=replace_damaged,
        )

    @classmethod
    def memory(
        cls,
        *,
        journal_backlog: int = 10_000,
        retention: float = 604_800.0,
        limits: JournalLimits | None = None,
    ) -> SQLStore:
        """Return a store in memory. It is lost when closed, and behaves like any other until then."""
        return cls(None, journal_backlog=journal_backlog, retention=retention, limits=limits)

    @classmethod
    def remote(
        cls,
        url: str,
        *,
        journal_backlog: int = 10_000,
        retention: float = 604_800.0,
        busy_seconds: float = 5.0,
        limits: JournalLimits | None = None,
    ) -> SQLStore:
        """Return a store in a PostgreSQL or MariaDB database, which other processes of this machine may share.

        Raises:
            ValueError: when the URL names no such database.
            StoreUnavailable: when its driver is not installed.
        """
        return cls(
            RemoteDatabase(url),
            journal_backlog=journal_backlog,
            retention=retention,
            busy_seconds=busy_seconds,
            limits=limits,
        )

    @property
    def location(self) -> str:
        """Location of the store, in words for its owner."""
        return self._connections.location

    @property
    def has_leases(self) -> bool:
        """Whether the nodes of the store may have leases: it is a database of PostgreSQL."""
        return isinstance(self._location, RemoteDatabase) and self._location.kind == "postgresql"

    def leases(self) -> Leases:
        """Return the leases of the nodes, not opened yet. Only a database of PostgreSQL has them."""
        assert isinstance(self._location, RemoteDatabase)
        return PostgresLeases(self._location)

    @property
    def dropped_entries(self) -> int:
        """Number of journal entries given up since the store was opened."""
        return self._writer.dropped_entries

    @property
    def trouble(self) -> str | None:
        """Why it refuses writes, in words for any caller; None when it takes them."""
        return self._writer.trouble or self._connections.trouble

    async def __aenter__(self) -> SQLStore:
        self._stack = AsyncExitStack()
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.push_async_callback(self._connections.aclose)
        try:
            await self._connections.open(tasks)
            await tasks.start(self._writer.run)
        except BaseException:
            await (
                self._stack.aclose()
            )  # the error must not pass the task group, which would wrap it
            raise
        self._stack.push_async_callback(self._writer.aclose, CLOSE_SECONDS)
        self._transactions.is_open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._transactions.is_open = False
        await self._stack.aclose()

    async def _before_serving(self, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step before serving begins. Damage found by it is treated like damage at opening."""
        try:
            return await step()
        except (StoreUnavailable, InvalidArgument) as error:
            if self._is_serving or not await self._connections.replace_if_damaged(error):
                raise
        if self._node_row is not None:
            await self._transactions.submit(partial(ownership.join, row=self._node_row))
        return await step()

    async def join(self, node: NodeRecord) -> None:
        row = rows.node_row(node)
        await self._before_serving(
            lambda: self._transactions.submit(partial(ownership.join, row=row))
        )
        self._node_row = row

    async def leave(self, node: str) -> None:
        await self._transactions.submit(partial(ownership.declare_dead, node=node))

    async def nodes(self) -> list[NodeRecord]:
        return await self._before_serving(lambda: self._transactions.read(queries.nodes))

    async def declare_dead(self, node: str) -> bool:
        operation = partial(ownership.declare_dead, node=node)
        return bool(await self._before_serving(lambda: self._transactions.submit(operation)))

    async def adopt(self, dead: Sequence[str], now: float) -> list[str]:
        operation = partial(ownership.adopt, dead=dead, now=now, retention=self._retention)
        session_ids = await self._before_serving(lambda: self._transactions.submit(operation))
        self._is_serving = True
        return cast("list[str]", session_ids)

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
        session = session.model_copy(update={"epoch": 1})
        row = rows.session_row(session)
        binding_rows = [rows.binding_row(binding) for binding in bindings]
        receipt_row = None if receipt is None else rows.receipt_row(receipt)
        await self._transactions.submit(
            NewSession(row, rows.state_row(state), binding_rows, per_owner, receipt_row, limit_name)
        )

    async def get(self, session_id: str, owner: str | None = None) -> SessionRecord | None:
        return await self._transactions.read(
            partial(queries.get, session_id=session_id, owner=owner)
        )

    async def find(self, owner: str, namespace: str, name: str) -> SessionRecord | None:
        query = partial(queries.find, owner=owner, namespace=namespace, name=name)
        return await self._transactions.read(query)

    async def find_closed(self, owner: str, namespace: str, name: str) -> SessionRecord | None:
        query = partial(queries.find_closed, owner=owner, namespace=namespace, name=name)
        return await self._transactions.read(query)

    async def list_sessions(
        self, session_filter: SessionFilter
    ) -> tuple[list[SessionRecord], str | None]:
        after = (
            None
            if session_filter.cursor is None
            else session_queries.position(session_filter.cursor, session_filter.order)
        )
        return await self._transactions.read(
            partial(session_queries.page, session_filter=session_filter, after=after)
        )

    async def usage(self, owner: str) -> int:
        return await self._transactions.read(partial(queries.usage, owner=owner))

    async def sizes(self, session_ids: Sequence[str]) -> dict[str, int]:
        return await self._transactions.read(partial(queries.sizes, session_ids=session_ids))

    async def ids(self, owner: str) -> list[str]:
        return await self._transactions.read(partial(queries.ids, owner=owner))

    async def creation_receipt(self, owner: str, operation_id: str) -> ReceiptRecord | None:
        query = partial(tool_receipts.creation_receipt, owner=owner, operation_id=operation_id)
        return await self._transactions.read(query)

    def free_bytes(self) -> int | None:
        return self._connections.free_bytes()

    async def counts(self, owner: str | None = None) -> dict[str, int]:
        return await self._transactions.read(partial(queries.counts, owner=owner))

    async def claim(self, session_id: str, node: str, now: float) -> ClaimedSession | None:
        operation = partial(
            ownership.claim,
            session_id=session_id,
            node=node,
            now=now,
            retention=self._retention,
        )
        return cast("ClaimedSession | None", await self._transactions.submit(operation))

    async def write(self, write: Write) -> None:
        await self._transactions.submit(rows.to_change(write))

    def append(self, entry: JournalRecord, node: str, owner: str = "") -> None:
        row = rows.journal_row(entry)
        self._writer.append(JournalAppend(entry.session_id, node, entry.epoch, row), owner)

    def append_call(self, entry: CallEntry, owner: str) -> None:
        self._writer.append(entry, owner)

    def append_end(
        self, entry: JournalRecord, receipt: ReceiptRecord, node: str, owner: str
    ) -> None:
        change = Change(
            entry.session_id,
            node,
            entry.epoch,
            ended_entries=(rows.journal_row(entry),),
            receipts=(rows.receipt_row(receipt),),
        )
        self._writer.append(change, owner)

    async def start_receipt(self, receipt: ReceiptRecord) -> ReceiptRecord | None:
        operation = partial(tool_receipts.start, row=rows.receipt_row(receipt))
        return cast("ReceiptRecord | None", await self._transactions.submit(operation))

    async def end_receipt(self, receipt: ReceiptRecord, *, forget: bool = False) -> None:
        row = rows.receipt_row(receipt)
        await self._transactions.submit(partial(tool_receipts.end, row=row, forget=forget))

    def append_receipt(self, receipt: ReceiptRecord, owner: str, *, forget: bool = False) -> None:
        row = rows.receipt_row(receipt)
        self._writer.append(partial(tool_receipts.end, row=row, forget=forget), owner)

    async def write_audit(self, document: str) -> None:
        await self._transactions.submit(AuditAppend(document))

    def append_audit(self, document: str, owner: str) -> None:
        self._writer.append(AuditAppend(document), owner)

    async def audit_page(self, after: int, limit: int) -> Sequence[AuditRow]:
        return await self._transactions.read(partial(audit_queries.page, after=after, limit=limit))

    async def audit_head(self) -> AuditHead:
        return await self._transactions.read(audit_queries.head)

    async def flush(self) -> None:
        if not self._transactions.is_open or not self._writer.idle:
            await self._transactions.submit(queries.do_nothing)

    async def bindings(self, session_id: str) -> list[BindingRecord]:
        return await self._transactions.read(partial(queries.bindings, session_id=session_id))

    async def state(self, session_id: str) -> StateRecord | None:
        return await self._transactions.read(partial(queries.state, session_id=session_id))

    async def state_versions(self, session_ids: Sequence[str]) -> dict[str, int]:
        return await self._transactions.read(
            partial(queries.state_versions, session_ids=session_ids)
        )

    async def snapshot(self, session_id: str, service: str) -> SnapshotRecord | None:
        return await self._transactions.read(
            partial(queries.snapshot, session_id=session_id, service=service)
        )

    async def journal(
        self, session_id: str, *, last: int = 100, after: int = 0
    ) -> list[JournalRecord]:
        query = partial(queries.journal, session_id=session_id, last=last, after=after)
        return await self._transactions.read(query)

    async def history(self, session_id: str, history_filter: HistoryFilter) -> list[JournalRecord]:
        return await self._transactions.read(
            partial(journal_queries.page, session_id=session_id, history_filter=history_filter)
        )

    async def journal_counts(self, session_id: str) -> JournalCounts:
        return await self._transactions.read(
            partial(journal_queries.journal_counts, session_id=session_id)
        )

    async def receipt(self, session_id: str, operation_id: str) -> ReceiptRecord | None:
        query = partial(journal_queries.receipt, session_id=session_id, operation_id=operation_id)
        return await self._transactions.read(query)

    async def receipts(self, session_id: str) -> tuple[int, int]:
        return await self._transactions.read(
            partial(journal_queries.receipts, session_id=session_id)
        )

    async def started_calls(self, session_id: str) -> list[tuple[ReceiptRecord, JournalRecord]]:
        return await self._transactions.read(
            partial(journal_queries.started_calls, session_id=session_id)
        )

    async def all_receipts(self, session_id: str) -> list[ReceiptRecord]:
        return await self._transactions.read(
            partial(journal_queries.all_receipts, session_id=session_id)
        )

    async def summary(self, session_id: str) -> SummaryRecord | None:
        return await self._transactions.read(
            partial(journal_queries.summary, session_id=session_id)
        )

    async def due(self, now: float, limit: int = 100) -> list[SessionRecord]:
        return await self._transactions.read(partial(queries.due, now=now, limit=limit))

    async def next_due(self) -> float | None:
        return await self._transactions.read(queries.next_due)

    async def purge(self, session_id: str) -> bool:
        return bool(
            await self._transactions.submit(partial(ownership.purge, session_id=session_id))
        )

    async def check(self) -> list[str]:
        try:
            return await self._transactions.read(queries.check)
        except StoreUnavailable as error:
            return [str(error)]

    async def check_writes(self) -> str | None:
        """Write without a change. Return why the database refuses that, None when it does not."""
        try:
            await self._transactions.submit(queries.touch)
        except StoreUnavailable as error:
            return str(error)
        return self.trouble


def open_store(path_or_url: Path | str, *, journal_backlog: int = 10_000) -> SQLStore:
    """Return the store of a data folder, of a database URL, or of `:memory:`; enter it to open it.

    Raises:
        ValueError: for the URL of a database that is not supported.
    """
    if path_or_url == ":memory:":
        return SQLStore.memory(journal_backlog=journal_backlog)
    if "://" in str(path_or_url):
        return SQLStore.remote(str(path_or_url), journal_backlog=journal_backlog)
    return SQLStore.sqlite(Path(path_or_url), journal_backlog=journal_backlog)
