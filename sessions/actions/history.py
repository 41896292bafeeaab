"""The history of sessions: reading the journal, adding messages, and summaries.

Reading does not count as use and resumes nothing. The session may be open in any process, or closed.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import orjson

from ..core import Core
from ..errors import InvalidArgument, OutcomeUnknown, SessionBusy, StoreUnavailable
from ..journal.digest import LAST_NOTES, MAX_LAST_CALLS, MAX_LAST_ERRORS, Material, digest, pages_of
from ..journal.entries import OVERHEAD, STARTED, message_entry
from ..journal.redaction import Redactor
from ..json_codec import JSON
from ..lifecycle import Status
from ..live.budget import Budget
from ..live.directory import Directory
from ..live.due_summaries import DueSummaries
from ..live.quota import Quota
from ..live.session import LiveSession
from ..records import (
    HistoryFilter,
    JournalKind,
    JournalRecord,
    Principal,
    SessionRecord,
    SummaryRecord,
)
from ..times import timestamp
from ..transitions.access import Access
from ..validation import label
from ..views import describe_binding

if TYPE_CHECKING:
    from ..store.sql import SQLStore

NOTE_BYTES = 65_536
"""Most bytes of a message. A larger one is refused, not cut, because its author wants to read it back whole."""
MAX_ROLE_LENGTH = 64
"""Most characters of the role of a message."""
PAGE_BYTES = 262_144
"""Most bytes of a page; the next page starts where it ended."""
MAX_READS = 2
"""Pages that are read at once: as many as a store has readers."""
MAX_WAITING = 1000
"""Requests for pages that may wait."""
FIRST_READ = 64
"""Entries that are read first for a page; each further read is twice as large, until the page is full."""
SNAPSHOT_BYTES = 8 << 20
"""Largest snapshot that is searched for open pages."""


class Histories:
    """The journals of one registry, as its callers may see them.

    With callers that are told apart, one of them has half of the reads at a time, as it may ask for many long pages.
    """

    def __init__(
        self,
        core: Core,
        directory: Directory,
        access: Access,
        quota: Quota,
        due_summaries: DueSummaries,
    ) -> None:
        self._core = core
        self._quota = quota
        self._directory = directory
        self._access = access
        self._due_summaries = due_summaries
        self._reads = Budget(
            MAX_READS, queue=MAX_WAITING, queue_seconds=math.inf, shared=core.policy.shared
        )

    async def page(
        self,
        principal: Principal,
        ref: str,
        history_filter: HistoryFilter,
        *,
        namespace: str | None = None,
        cursor: str | None = None,
    ) -> tuple[SessionRecord, list[JSON], str | None]:
        """Return entries as callers see them, the newest last, and the cursor of the page of older ones.

        Raises:
            SessionNotFound: unknown, foreign or purged.
            InvalidArgument: the cursor is not one of a history page.
            SessionLimit: too many requests of the principal wait.
        """
        record = await self._find_record(principal, ref, namespace)
        if cursor is not None:
            before = position(cursor)
            history_filter = history_filter.model_copy(
                update={"before": min(before, history_filter.before or before)}
            )
        async with self._reads.place(principal.key):
            entries = await self._read(record, history_filter)
        newest = entries[-history_filter.limit :] if history_filter.limit else []
        page = _newest_that_fit(newest)
        more = bool(page) and len(page) < len(entries)
        return record, page, cursor_before(page[0]["seq"]) if more else None

    async def _read(self, record: SessionRecord, history_filter: HistoryFilter) -> list[JSON]:
        """Return the newest entries, one more than the filter asks for, or more than fit into a page.

        They are read in parts: a thousand messages may take megabytes, of which a page shows little.
        """
        missing = history_filter.limit + 1 if history_filter.limit else 0
        entries: list[JSON] = []
        size, part = 0, FIRST_READ
        while missing and size <= PAGE_BYTES:
            limit = min(part, missing)
            rows = await self._core.store.history(
                record.id, history_filter.model_copy(update={"limit": limit})
            )
            shown = [self._show_entry(record, row) for row in rows]
            size += sum(map(_size, shown))
            entries[:0] = shown
            if len(rows) < limit:
                break
            history_filter = history_filter.model_copy(update={"before": rows[0].seq})
            missing -= limit
            part *= 2
        return entries

    async def entry(
        self, principal: Principal, ref: str, seq: int, *, namespace: str | None = None
    ) -> tuple[SessionRecord, JSON]:
        """Return the entry at a position.

        Raises:
            InvalidArgument: there is no entry at it.
        """
        record = await self._find_record(principal, ref, namespace)
        entries = await self._core.store.history(record.id, HistoryFilter(before=seq + 1, limit=1))
        if not entries or entries[0].seq != seq:
            raise InvalidArgument(f"The history has no entry {seq}.", session_id=record.id)
        return record, self._show_entry(record, entries[0])

    async def _find_record(
        self, principal: Principal, ref: str, namespace: str | None
    ) -> SessionRecord:
        """Return the record of a session, after the entries that this process holds for it are written."""
        record = await self._directory.find_record(principal, ref, namespace)
        if self._directory.get(record.id) is not None:
            await self._core.store.flush()
        return record

    def _show_entry(self, record: SessionRecord, entry: JournalRecord) -> JSON:
        return show_in_session(entry, record, self._directory.get(record.id))

    async def note(
        self, principal: Principal, ref: str, role: str, content: str, run: str | None = None
    ) -> tuple[LiveSession, JSON]:
        """Add a message to the journal, durable on return; a paused session stays paused.

        Raises:
            InvalidArgument: it is too large, or role or run cannot be stored.
            SessionClosed, SessionExpired, SessionFailed: the session is closed.
        """
        label("role", role, MAX_ROLE_LENGTH)
        if run is not None:
            label("run_id", run)
        size = len(content.encode(errors="replace"))
        if size > NOTE_BYTES:
            raise InvalidArgument(
                f"content takes {size} bytes; {NOTE_BYTES} are allowed.",
                recovery="Split the message, or keep it elsewhere and note where it is.",
            )
        session = self._directory.ready(principal, ref)
        if session is not None:
            return session, await self._note(session, role, content, run)
        async with self._access.hold(principal, ref) as session:
            return session, await self._note(session, role, content, run)

    async def _note(self, session: LiveSession, role: str, content: str, run: str | None) -> JSON:
        self._quota.check(session.record.owner, len(content) + OVERHEAD)
        content = await self._core.redactions.prose(content, session.record.owner)
        now = self._core.clock.now()
        entry = message_entry(
            session_id=session.id,
            epoch=session.record.epoch,
            seq=session.next_seq(),
            at=now,
            role=role,
            content=content,
            run=run,
        )
        try:
            await session.save(journal=[entry])
        except (SessionBusy, StoreUnavailable):
            session.free_seq(entry.seq)
            raise
        if session.status is Status.IDLE:
            session.idle_since = now
        self._due_summaries.record_message(session)
        return show(entry)

    async def summary(
        self, principal: Principal, ref: str, *, namespace: str | None = None
    ) -> tuple[SessionRecord, JSON]:
        """Return a host's summary of a session, None without one, and a digest of the stored records.

        The digest is made without a model and quotes the records; the same records give the same digest.
        """
        record = await self._find_record(principal, ref, namespace)
        session = self._directory.get(record.id)
        return record, await summarize(self._core.store, record, self._core.redactor, session)

    async def write_summary(
        self, principal: Principal, ref: str, text: str, topics: list[str]
    ) -> LiveSession:
        """Store a host's own summary in place of the one before, durable on return.

        Raises:
            SessionClosed, SessionExpired, SessionFailed: the session is closed.
        """
        session = self._directory.ready(principal, ref)
        if session is not None:
            await self._write_summary(session, text, topics)
            return session
        async with self._access.hold(principal, ref) as session:
            await self._write_summary(session, text, topics)
            return session

    async def _write_summary(self, session: LiveSession, text: str, topics: list[str]) -> None:
        redact, owner = self._core.redactions.prose, session.record.owner
        self._quota.check(owner, len(text) + sum(map(len, topics)))
        text = await redact(text, owner)
        topics = [await redact(topic, owner) for topic in dict.fromkeys(topics)]
        await session.save(
            summary=SummaryRecord(
                session_id=session.id,
                text=text,
                topics=topics,
                updated_at=self._core.clock.now(),
                through_seq=session.last_seq,
            )
        )


async def summarize(
    store: SQLStore, record: SessionRecord, redactor: Redactor, session: LiveSession | None = None
) -> JSON:
    """Return the summary of a stored session; see History.summary. Pass `session` if this process holds it."""
    counts = await store.journal_counts(record.id)
    summary = await store.summary(record.id)
    return {
        "summary": None if summary is None else _summary_fields(summary, counts.last_seq),
        "digest": digest(await _material(store, record, session), counts, redactor),
    }


async def _material(
    store: SQLStore, record: SessionRecord, session: LiveSession | None
) -> Material:
    read_history, key = store.history, record.id
    calls = HistoryFilter(kinds=[JournalKind.CALL], limit=MAX_LAST_CALLS)
    failed_calls = calls.model_copy(update={"failed": True, "limit": MAX_LAST_ERRORS})
    notes = HistoryFilter(kinds=[JournalKind.MESSAGE], limit=LAST_NOTES)
    state = await store.state(key)
    bindings = await store.bindings(key)
    if session is not None:
        bindings = [binding.record for binding in session.bindings.values()]
    return Material(
        name=record.name,
        status=(session.status if session else record.status).value,
        reason=record.reason,
        services=[describe_binding(binding) for binding in bindings],
        calls=[show_in_session(entry, record, session) for entry in await read_history(key, calls)],
        errors=[
            show_in_session(entry, record, session)
            for entry in await read_history(key, failed_calls)
        ],
        notes=[show(entry) for entry in await read_history(key, notes)],
        state_version=state.version if state else 0,
        state_keys=list(state.value) if state else [],
        pages=[page for b in bindings for page in await _pages(store, key, b.service)],
    )


async def _pages(store: SQLStore, session_id: str, service: str) -> list[JSON]:
    record = await store.snapshot(session_id, service)
    if record is None or len(record.data) > SNAPSHOT_BYTES:
        return []
    return await anyio.to_thread.run_sync(pages_of, record.data)


def _summary_fields(record: SummaryRecord, last_seq: int) -> JSON:
    return {
        "text": record.text,
        "topics": record.topics,
        "updated_at": timestamp(record.updated_at),
        "source": "host",
        "through_seq": record.through_seq,
        "entries_since": max(0, last_seq - record.through_seq),
    }


def show(entry: JournalRecord) -> JSON:
    """Return an entry as a caller sees it, without fields that are None."""
    fields: JSON = {
        "seq": entry.seq,
        "kind": entry.kind.value,
        "at": timestamp(entry.started_at),
        "service": entry.service,
        "tool": entry.tool,
        "status": entry.status,
        "role": entry.role,
        "run_id": entry.run,
        "operation_id": entry.operation_id,
        "error": entry.error,
    }
    request: Any = entry.request
    match entry.kind:
        case JournalKind.CALL | JournalKind.STATE:
            fields |= {"arguments": request, "result": entry.result, "generation": entry.generation}
            if entry.ended_at is not None:
                fields["duration_ms"] = round((entry.ended_at - entry.started_at) * 1000, 3)
        case JournalKind.MESSAGE:
            fields["content"] = request["content"]
        case JournalKind.TRANSITION:
            fields["transition"] = request
        case JournalKind.CONTROL:
            fields["control"] = request
        case JournalKind.RUN:
            fields |= {"ended_at": timestamp(entry.ended_at), "metadata": request}
        case JournalKind.COMPACTED:
            fields |= {"compacted": request, "until": timestamp(entry.ended_at)}
    return {key: value for key, value in fields.items() if value is not None}


def show_in_session(
    entry: JournalRecord, record: SessionRecord, session: LiveSession | None
) -> JSON:
    """Return an entry as show() does; a started call that no longer runs gets the status `outcome_unknown`."""
    fields = show(entry)
    if entry.status == STARTED and entry.kind is JournalKind.CALL:
        running = entry.seq in session.started_entries if session else bool(record.node)
        if not running:
            fields["status"] = OutcomeUnknown.code
    return fields


def _newest_that_fit(entries: list[JSON]) -> list[JSON]:
    """Return the newest entries that fit into one page, at least one."""
    remaining = PAGE_BYTES
    for number, entry in enumerate(reversed(entries)):
        remaining -= _size(entry)
        if remaining < 0 and number:
            return entries[-number:]
    return entries


def _size(entry: JSON) -> int:
    try:
        return len(orjson.dumps(entry))
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits, or half a surrogate pair.
        return len(repr(entry))


def cursor_before(seq: int) -> str:
    return base64.urlsafe_b64encode(f"before {seq}".encode()).decode().rstrip("=")


def position(cursor: str) -> int:
    """Read a cursor.

    Raises:
        InvalidArgument: it is not the cursor of a history page.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        prefix, seq = text.split(" ")
        if prefix == "before" and seq.isdecimal() and len(seq) < 19:
            return int(seq)
    except (ValueError, binascii.Error):
        pass
    raise InvalidArgument("This is not the cursor of a page of a history.")
