"""Reading journals, receipts and summaries. Each function runs single statements on the connection it is given."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, String, bindparam, case, delete, func, or_, select, text

from ..journal.entries import INPUT_REQUIRED, STARTED
from ..json_codec import loads
from ..records import (
    NEVER,
    HistoryFilter,
    JournalCounts,
    JournalKind,
    JournalRecord,
    ReceiptRecord,
    SummaryRecord,
)
from . import rows, schema
from .sealing.keyring import open_row

_j = schema.journal.c
_r = schema.receipt.c
_s = schema.session.c
_this = bindparam("session_id", type_=String())

MAX_OPEN_CALLS = 1000
_RECEIPT = select(schema.receipt).where(
    _r.session_id == _this, _r.operation_id == bindparam("operation_id", type_=String())
)
KEPT_BYTES = case((_r.result.is_not(None), _r.bytes), else_=0)
"""The bytes of the result of an operation, if it was kept."""
_RECEIPTS = select(func.count(), func.coalesce(func.sum(KEPT_BYTES), 0)).where(
    _r.session_id == _this, or_(_r.expires_at.is_(None), _r.expires_at >= NEVER)
)
_EXPIRING_RECEIPTS = select(func.count(), func.coalesce(func.sum(KEPT_BYTES), 0)).where(
    _r.session_id == _this, _r.expires_at < NEVER
)
_DELETE_EXPIRED = delete(schema.receipt).where(_r.expires_at <= bindparam("now"))
_ALL_RECEIPTS = (
    select(schema.receipt).where(_r.session_id == _this).order_by(_r.seq, _r.operation_id)
)
_SUMMARY = select(schema.summary).where(schema.summary.c.session_id == _this)


def page(
    connection: Connection, session_id: str, history_filter: HistoryFilter
) -> list[JournalRecord]:
    """Return the newest entries that match a filter, oldest first."""
    # The index holds every filter but the times, so it finds the positions before the entries are read.
    if history_filter.limit == 0:
        return []
    query = select(_j.seq).where(_j.session_id == session_id)
    if history_filter.last_runs is not None:
        runs = _last_runs(connection, session_id, history_filter)
        query = query.where(_j.run.in_(runs))
    if history_filter.skip_run_statuses:
        skipped = _runs_with(session_id, history_filter.skip_run_statuses)
        query = query.where(or_(_j.run.is_(None), _j.run.not_in(skipped)))
    query = _apply_filter(query, history_filter).order_by(_j.seq.desc()).limit(history_filter.limit)
    positions = list(connection.scalars(query))
    if not positions:
        return []
    statement = select(schema.journal).where(_j.session_id == session_id, _j.seq.in_(positions))
    return [
        rows.journal_record(open_row(connection, row, schema.journal))
        for row in connection.execute(statement.order_by(_j.seq))
    ]


def _apply_filter(query: Select[Any], history_filter: HistoryFilter) -> Select[Any]:
    for column, values in (
        (_j.kind, history_filter.kinds),
        (_j.tool, history_filter.tools),
        (_j.status, history_filter.statuses),
        (_j.run, history_filter.runs),
        (_j.role, history_filter.roles),
    ):
        if values is not None:
            query = query.where(column.in_([str(value) for value in values]))
    for column, values in (
        (_j.tool, history_filter.skip_tools),
        (_j.role, history_filter.skip_roles),
    ):
        if values:
            query = query.where(or_(column.is_(None), column.not_in(values)))
    if history_filter.failed:
        query = query.where(_j.status.not_in(("ok", STARTED, INPUT_REQUIRED)))
    if history_filter.before is not None:
        query = query.where(_j.seq < history_filter.before)
    if history_filter.since is not None:
        query = query.where(_j.started_at >= history_filter.since)
    if history_filter.until is not None:
        query = query.where(_j.started_at < history_filter.until)
    return query


def _runs_with(session_id: str, statuses: list[str]) -> Select[Any]:
    """Select the runs with these statuses. A run that began several times has the status of its newest entry."""
    newest = select(func.max(_j.seq)).where(
        _j.session_id == session_id, _j.kind == JournalKind.RUN.value
    )
    return select(_j.run).where(
        _j.session_id == session_id,
        _j.seq.in_(newest.group_by(_j.run)),
        _j.status.in_(statuses),
        _j.run.is_not(None),
    )


def _last_runs(connection: Connection, session_id: str, history_filter: HistoryFilter) -> list[str]:
    """Return the last runs that a filter allows, the newest first, reading one entry for each."""
    runs: list[str] = []
    candidates = select(_j.run).where(_j.session_id == session_id, _j.run.is_not(None))
    if history_filter.skip_run_statuses:
        skipped = _runs_with(session_id, history_filter.skip_run_statuses)
        candidates = candidates.where(_j.run.not_in(skipped))
    while len(runs) < (history_filter.last_runs or 0):
        newest = candidates.where(_j.run.not_in(runs))
        run = connection.scalar(newest.order_by(_j.seq.desc()).limit(1))
        if run is None:
            break
        runs.append(run)
    return runs


def receipt(connection: Connection, session_id: str, operation_id: str) -> ReceiptRecord | None:
    parameters = {"session_id": session_id, "operation_id": operation_id}
    row = connection.execute(_RECEIPT, parameters).first()
    return None if row is None else rows.receipt_record(open_row(connection, row, schema.receipt))


def receipts(connection: Connection, session_id: str, *, expiring: bool = False) -> tuple[int, int]:
    """Return the number of a session's receipts, those that expire or the others, and the bytes of their results."""
    query = _EXPIRING_RECEIPTS if expiring else _RECEIPTS
    row = connection.execute(query, {"session_id": session_id}).one()
    return int(row[0]), int(row[1])


def delete_expired_receipts(connection: Connection, now: float) -> None:
    """Delete the receipts of handed-over calls whose time is over."""
    connection.execute(_DELETE_EXPIRED, {"now": now})


def all_receipts(connection: Connection, session_id: str) -> list[ReceiptRecord]:
    """Return every receipt of a session, in the order of its calls."""
    result = connection.execute(_ALL_RECEIPTS, {"session_id": session_id})
    return [rows.receipt_record(open_row(connection, row, schema.receipt)) for row in result]


_STARTED_RECEIPTS = select(schema.receipt).where(_r.session_id == _this, _r.status == STARTED)
_STARTED_ENTRIES = select(schema.journal).where(_j.session_id == _this, _j.status == STARTED)


def started_calls(
    connection: Connection, session_id: str
) -> list[tuple[ReceiptRecord, JournalRecord]]:
    """Return the calls with an operation id whose end is not recorded: the receipt and the journal entry of each."""
    parameters = {"session_id": session_id}
    receipts_by_seq = {
        receipt.seq: receipt
        for receipt in (
            rows.receipt_record(open_row(connection, row, schema.receipt))
            for row in connection.execute(_STARTED_RECEIPTS, parameters)
        )
    }
    entries = (
        rows.journal_record(open_row(connection, row, schema.journal))
        for row in connection.execute(_STARTED_ENTRIES, parameters)
    )
    return [
        (receipts_by_seq[entry.seq], entry) for entry in entries if entry.seq in receipts_by_seq
    ]


_OPEN_CALLS = (
    select(_s.id, _s.name, _r.operation_id, _j.tool, _r.started_at)
    .join_from(schema.journal, schema.session, _s.id == _j.session_id)
    .join(schema.receipt, _r.session_id == _j.session_id)
    # As in the index of started receipts, which no parameter matches.
    .where(text("receipt.status = 'started'"), _r.seq == _j.seq)
    # Other calls with an operation id end with their requests.
    .where(_r.expires_at.is_not(None))
    .where(_s.owner == bindparam("owner", type_=String()))
    .order_by(_r.started_at.desc())
    .limit(MAX_OPEN_CALLS)
)


def open_calls(
    connection: Connection, owner: str, session_id: str | None = None
) -> list[tuple[str, str | None, str, str | None, float]]:
    """Return the calls that were handed over and did not end, of all sessions of an owner or of one, the latest first.

    Each is the session with its name, the operation id, the tool, and when it began.
    """
    query = _OPEN_CALLS if session_id is None else _OPEN_CALLS.where(_s.id == _this)
    calls: list[tuple[str, str | None, str, str | None, float]] = []
    for row in connection.execute(query, {"owner": owner, "session_id": session_id}):
        name = open_row(connection, row, schema.session)["name"]
        calls.append((row[0], name, row[2], row[3], row[4]))
    return calls


def summary(connection: Connection, session_id: str) -> SummaryRecord | None:
    row = connection.execute(_SUMMARY, {"session_id": session_id}).first()
    return None if row is None else rows.summary_record(open_row(connection, row, schema.summary))


_COUNTS = (
    select(_j.kind, _j.tool, _j.status, _j.role, func.count())
    .where(_j.session_id == _this)
    .group_by(_j.kind, _j.tool, _j.status, _j.role)
)
_RUNS = select(func.count(_j.run.distinct())).where(_j.session_id == _this)
_COMPACTED = select(schema.journal).where(
    _j.session_id == _this, _j.kind == JournalKind.COMPACTED.value
)
_ENDS = select(_j.seq, _j.started_at).where(_j.session_id == _this).limit(1)


def journal_counts(connection: Connection, session_id: str) -> JournalCounts:
    """Return the counts of a session's calls by tool and outcome, and of its other entries, compacted ones included.

    Started calls are counted as such.
    """
    this = {"session_id": session_id}
    calls: dict[str, dict[str, int]] = {}
    messages: dict[str, int] = {}
    transitions = entries = 0
    for kind, tool, status, role, count in connection.execute(_COUNTS, this):
        if kind == JournalKind.CALL:
            calls.setdefault(tool or "?", {})[status or STARTED] = count
        elif kind == JournalKind.MESSAGE:
            messages[role or "?"] = messages.get(role or "?", 0) + count
        elif kind == JournalKind.TRANSITION:
            transitions += count
        elif kind == JournalKind.COMPACTED:
            continue
        entries += count
    runs = connection.scalar(_RUNS, this) or 0
    for row in connection.execute(_COMPACTED, this):
        compacted = loads(open_row(connection, row, schema.journal)["request"])
        entries += compacted["entries"]
        transitions += compacted["transitions"]
        runs += compacted["runs"]
        for tool, by_status in compacted["calls"].items():
            outcomes = calls.setdefault(tool, {})
            for status, count in by_status.items():
                outcomes[status] = outcomes.get(status, 0) + count
        for role, count in compacted["messages"].items():
            messages[role] = messages.get(role, 0) + count
    first = connection.execute(_ENDS.order_by(_j.seq), this).first()
    last = connection.execute(_ENDS.order_by(_j.seq.desc()), this).first()
    return JournalCounts(
        calls=calls,
        messages=messages,
        transitions=transitions,
        runs=runs,
        entries=entries,
        first_at=None if first is None else first[1],
        last_at=None if last is None else last[1],
        last_seq=0 if last is None else last[0],
    )
