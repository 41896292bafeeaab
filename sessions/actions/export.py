"""Exporting a stored session as a document. This only reads; the session may be open in any process, or closed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio.to_thread
from pydantic_core import from_json, to_json

from ..calls.receipts import is_creation_id
from ..errors import InvalidArgument
from ..journal.redaction import Redactor
from ..records import (
    BindingRecord,
    HistoryFilter,
    JournalRecord,
    ReceiptRecord,
    SessionRecord,
    StateRecord,
)
from ..state.patch import MAX_DEPTH, size_of
from .branches import BASE
from .document import (
    BindingPart,
    Document,
    EntryPart,
    ForkPart,
    ReceiptPart,
    SessionPart,
    SnapshotPart,
    StatePart,
    SummaryPart,
    TimeoutsPart,
    json_text,
)

if TYPE_CHECKING:
    from ..store.sql import SQLStore

PAGE: Final = 1000


class _ByteBudget:
    """The bytes that a document may still take. A limit of None means no bound."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._remaining = limit or 0

    def take(self, size: int) -> None:
        """Count `size` bytes.

        Raises:
            InvalidArgument: the limit is exceeded.
        """
        self._remaining -= size
        if self._limit is not None and self._remaining < 0:
            raise InvalidArgument(
                f"The document would take more than {self._limit} bytes, which is too much for the result of a tool.",
                recovery="Ask the operator of this server for the file that `statehold sessions export` writes.",
            )


async def export_document(
    store: SQLStore,
    record: SessionRecord,
    *,
    now: float,
    redactor: Redactor,
    secrets: bool = False,
    limit: int | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Document:
    """Return all stored data of a session as a document.

    Without `secrets` it has no snapshots and no results of operations, and values that the redactor takes for secret are
    replaced in state and metadata. `report` gets the entries of the journal that are read, and those that there are.

    Raises:
        InvalidArgument: the document takes more than `limit` bytes.
    """
    budget = _ByteBudget(limit)
    state = await store.state(record.id) or StateRecord(session_id=record.id)
    budget.take(size_of(state.value))
    fork_state = await store.snapshot(record.id, BASE)
    if fork_state is not None:
        budget.take(len(fork_state.data))
    bindings = [
        await _binding(store, binding, budget, secrets=secrets)
        for binding in await store.bindings(record.id)
    ]
    receipts = [
        _receipt(receipt, budget, secrets=secrets)
        for receipt in await store.all_receipts(record.id)
        # The call that created this session does not create the imported one, and a task is one of this session.
        if not is_creation_id(receipt.operation_id) and receipt.expires_at is None
    ]
    journal = await _journal(store, record.id, budget, report)
    summary = await store.summary(record.id)
    document = Document.model_construct(
        format="statehold.session",
        version=1,
        exported_at=now,
        secrets=secrets,
        session=SessionPart.of_record(
            record, status=record.status.value, timeouts=TimeoutsPart.of_record(record.timeouts)
        ),
        fork=_fork(record, None if fork_state is None else fork_state.data),
        state=StatePart.of_record(state),
        bindings=bindings,
        journal=journal,
        receipts=receipts,
        summary=None if summary is None else SummaryPart.of_record(summary),
    )
    if not secrets:
        await anyio.to_thread.run_sync(partial(_redact, document, redactor))
    return document


def _fork(record: SessionRecord, base: bytes | None) -> ForkPart | None:
    if record.parent is None:
        return None
    return ForkPart.model_construct(
        parent=record.parent, state=None if base is None else from_json(base)
    )


async def _binding(
    store: SQLStore, binding: BindingRecord, room: _ByteBudget, *, secrets: bool
) -> BindingPart:
    snapshot: SnapshotPart | None = None
    record = await store.snapshot(binding.session_id, binding.service) if secrets else None
    if record is not None:
        room.take(len(record.data) * 4 // 3)
        snapshot = SnapshotPart.of(record.data, record.taken_at)
    return BindingPart.of_record(binding, snapshot=snapshot)


def _receipt(receipt: ReceiptRecord, room: _ByteBudget, *, secrets: bool) -> ReceiptPart:
    result, error = (receipt.result, receipt.error) if secrets else (None, None)
    # Leave out a result that JSON cannot hold exactly; a repeat of the operation then fails with OutcomeUnknown.
    result = result if _is_exact(result) else None
    room.take(200 + size_of([result, error]))
    return ReceiptPart.of_record(receipt, result=result, error=error)


def _is_exact(value: object) -> bool:
    try:
        to_json(value)
    except ValueError:
        return False
    return True


async def _journal(
    store: SQLStore,
    session_id: str,
    room: _ByteBudget,
    report: Callable[[int, int], None] | None,
) -> list[EntryPart]:
    """Return every entry, the oldest first. Entries added meanwhile are left out."""
    pages: list[list[EntryPart]] = []
    before: int | None = None
    newest: int | None = None
    while True:
        records = await store.history(session_id, HistoryFilter(before=before, limit=PAGE))
        page = await anyio.to_thread.run_sync(_entries, records)
        room.take(sum(size for _, size in page))
        pages.append([entry for entry, _ in page])
        is_last = len(records) < PAGE
        if report is not None and records:
            newest = newest or records[-1].seq
            # Entries are numbered from one, and the oldest of them may be gone.
            report(newest if is_last else newest + 1 - records[0].seq, newest)
        if is_last:
            return [entry for page in reversed(pages) for entry in page]
        before = records[0].seq


def _entries(records: Sequence[JournalRecord]) -> list[tuple[EntryPart, int]]:
    return [_entry(record) for record in records]


def _entry(record: JournalRecord) -> tuple[EntryPart, int]:
    entry = EntryPart.of_record(record, kind=record.kind.value)
    if not _is_exact([entry.request, entry.result, entry.error, entry.facts]):
        # Half of a surrogate pair, which text in a file cannot hold.
        for key in ("request", "result", "error", "facts"):
            text = json.dumps(getattr(entry, key), ensure_ascii=False)
            setattr(entry, key, json.loads(text.encode(errors="replace")))
    return entry, len(json_text(entry.values()))


def _redact(document: Document, redactor: Redactor) -> None:
    def clean(value: object) -> dict[str, Any]:
        return cast("dict[str, Any]", redactor.value(value, levels=MAX_DEPTH + 1))

    document.state.value = clean(document.state.value)
    document.session.metadata = clean(document.session.metadata)
    if document.fork is not None and document.fork.state is not None:
        document.fork.state = clean(document.fork.state)
