"""A stored session as a document. It reads only, and works whoever holds the session, also after it was closed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import anyio.to_thread
from pydantic_core import from_json, to_json

from .document import (
    About,
    Bound,
    Document,
    Entry,
    Fork,
    Receipt,
    Saved,
    State,
    Summary,
    Times,
    text_of,
)
from .errors import InvalidArgument
from .forking import BASE
from .records import (
    LABELS,
    BindingRecord,
    HistoryFilter,
    JournalRecord,
    ReceiptRecord,
    SessionRecord,
    StateRecord,
    SummaryRecord,
)
from .redaction import Redactor
from .state import DEPTH, size_of
from .store.base import Store

PAGE: Final = 1000


class _Room:
    """What a document may still take; None is as much as it wants."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._left = limit or 0

    def take(self, size: int) -> None:
        """Count something in.

        Raises:
            InvalidArgument: there is no room for it.
        """
        self._left -= size
        if self._limit is not None and self._left < 0:
            raise InvalidArgument(
                f"The document would take more than {self._limit} bytes, which is too much for the result of a tool.",
                recovery="Ask whoever runs this server for the file that `statehold sessions export` writes.",
            )


async def exported(
    store: Store,
    record: SessionRecord,
    *,
    now: float,
    redactor: Redactor,
    secrets: bool = False,
    limit: int | None = None,
) -> Document:
    """Return all that a store keeps of a session.

    Without `secrets` there are no snapshots and no results of operations, and what the redactor takes for secret is
    replaced in state and metadata.

    Raises:
        InvalidArgument: it takes more than `limit` bytes.
    """
    room = _Room(limit)
    state = await store.state(record.id) or StateRecord(session_id=record.id)
    room.take(size_of(state.value))
    base = await store.snapshot(record.id, BASE)
    if base is not None:
        room.take(len(base.data))
    bindings = [
        await _bound(store, binding, room, secrets=secrets)
        for binding in await store.bindings(record.id)
    ]
    receipts = [
        _receipt(receipt, room, secrets=secrets) for receipt in await store.all_receipts(record.id)
    ]
    journal = await _journal(store, record.id, room)
    written = await store.summary(record.id)
    document = Document.model_construct(
        format="statehold.session",
        version=1,
        exported_at=now,
        secrets=secrets,
        session=_about(record),
        fork=_fork(record, None if base is None else base.data),
        state=State.model_construct(
            version=state.version, value=state.value, json_schema=state.json_schema
        ),
        bindings=bindings,
        journal=journal,
        receipts=receipts,
        summary=None if written is None else _summary(written),
    )
    if not secrets:
        await anyio.to_thread.run_sync(partial(_redact, document, redactor))
    return document


def _about(record: SessionRecord) -> About:
    times = record.timeouts
    return About.model_construct(
        id=record.id,
        namespace=record.namespace,
        name=record.name,
        status=record.status.value,
        reason=record.reason,
        created_at=record.created_at,
        used_at=record.used_at,
        closed_at=record.closed_at,
        timeouts=Times(idle=times.idle, paused=times.paused, lifetime=times.lifetime),
        metadata=record.metadata,
        **{label: getattr(record, label) for label in LABELS},
    )


def _fork(record: SessionRecord, base: bytes | None) -> Fork | None:
    if record.parent is None:
        return None
    return Fork.model_construct(
        parent=record.parent, state=None if base is None else from_json(base)
    )


async def _bound(store: Store, binding: BindingRecord, room: _Room, *, secrets: bool) -> Bound:
    saved: Saved | None = None
    found = await store.snapshot(binding.session_id, binding.service) if secrets else None
    if found is not None:
        room.take(len(found.data) * 4 // 3)
        saved = Saved.of(found.data, found.taken_at)
    return Bound.model_construct(
        service=binding.service,
        generation=binding.generation,
        config_hash=binding.config_hash,
        snapshot=saved,
    )


def _receipt(receipt: ReceiptRecord, room: _Room, *, secrets: bool) -> Receipt:
    result, error = (receipt.result, receipt.error) if secrets else (None, None)
    # What cannot be given back exactly is not given back: a repeat is told so.
    result = result if _is_exact(result) else None
    room.take(200 + size_of([result, error]))
    return Receipt.model_construct(
        operation_id=receipt.operation_id,
        digest=receipt.digest,
        status=receipt.status,
        seq=receipt.seq,
        started_at=receipt.started_at,
        ended_at=receipt.ended_at,
        bytes=receipt.bytes,
        result=result,
        error=error,
    )


def _is_exact(value: object) -> bool:
    try:
        to_json(value)
    except ValueError:
        return False
    return True


async def _journal(store: Store, session_id: str, room: _Room) -> list[Entry]:
    """Return every entry, the oldest first, from that moment back: what is added meanwhile is not there."""
    pages: list[list[Entry]] = []
    before: int | None = None
    while True:
        found = await store.history(session_id, HistoryFilter(before=before, limit=PAGE))
        page = await anyio.to_thread.run_sync(_entries, found)
        room.take(sum(size for _, size in page))
        pages.append([entry for entry, _ in page])
        if len(found) < PAGE:
            return [entry for page in reversed(pages) for entry in page]
        before = found[0].seq


def _entries(records: Sequence[JournalRecord]) -> list[tuple[Entry, int]]:
    return [_entry(record) for record in records]


def _entry(record: JournalRecord) -> tuple[Entry, int]:
    values = {key: getattr(record, key) for key in Entry.model_fields}
    values["kind"] = record.kind.value
    if not _is_exact([values["request"], values["result"], values["error"]]):
        # Half of a surrogate pair, which a text in a file cannot have.
        for key in ("request", "result", "error"):
            text = json.dumps(values[key], ensure_ascii=False)
            values[key] = json.loads(text.encode(errors="replace"))
    return Entry.model_construct(**values), len(text_of(values))


def _summary(record: SummaryRecord) -> Summary:
    return Summary.model_construct(
        text=record.text,
        topics=record.topics,
        updated_at=record.updated_at,
        through_seq=record.through_seq,
    )


def _redact(document: Document, redactor: Redactor) -> None:
    def clean(value: object) -> dict[str, Any]:
        return cast("dict[str, Any]", redactor.value(value, levels=DEPTH + 1))

    document.state.value = clean(document.state.value)
    document.session.metadata = clean(document.session.metadata)
    if document.fork is not None and document.fork.state is not None:
        document.fork.state = clean(document.fork.state)


__all__ = ["exported"]
