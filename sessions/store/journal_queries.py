"""Reading journals, receipts and summaries. Each function runs single statements on the connection it is given."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, String, bindparam, func, or_, select

from ..journal.entries import INPUT_REQUIRED, STARTED
from ..json_codec import loads
from ..records import HistoryFilter, JournalKind, JournalRecord, ReceiptRecord, SummaryRecord
from . import rows, schema
from .base import JournalCounts
from .compaction import OTHERS
from .rows import mapping

_j = schema.journal.c
_r = schema.receipt.c
_this = bindparam("session_id", type_=String())

_RECEIPT = select(schema.receipt).where(
    _r.session_id == _this, _r.operation_id == bindparam("operation_id", type_=String())
)
_RECEIPTS = select(func.count(), func.coalesce(func.sum(_r.bytes), 0)).where(_r.session_id == _this)
_ALL_RECEIPTS = (
    select(schema.receipt).where(_r.session_id == _this).order_by(_r.seq, _r.operation_id)
)
_SUMMARY = select(schema.summary).where(schema.summary.c.session_id == _this)


def page(connection: Connection, session_id: str, wanted: HistoryFilter) -> list[JournalRecord]:
    """Find the positions first, in the index that holds every filter but the times, then read the entries."""
    if wanted.limit == 0:
        return []
    found = select(_j.seq).where(_j.session_id == session_id)
    if wanted.last_runs is not None:
        runs = _last_runs(connection, session_id, wanted.last_runs)
        found = found.where(_j.run.in_(runs))
    found = _filtered(found, wanted).order_by(_j.seq.desc()).limit(wanted.limit)
    positions = list(connection.scalars(found))
    if not positions:
        return []
    statement = select(schema.journal).where(_j.session_id == session_id, _j.seq.in_(positions))
    return [
        rows.journal_record(mapping(row)) for row in connection.execute(statement.order_by(_j.seq))
    ]


def _filtered(found: Select[Any], wanted: HistoryFilter) -> Select[Any]:
    for column, values in (
        (_j.kind, wanted.kinds),
        (_j.tool, wanted.tools),
        (_j.status, wanted.statuses),
        (_j.run, wanted.runs),
        (_j.role, wanted.roles),
    ):
        if values is not None:
            found = found.where(column.in_([str(value) for value in values]))
    for column, values in ((_j.tool, wanted.skip_tools), (_j.role, wanted.skip_roles)):
        if values:
            found = found.where(or_(column.is_(None), column.not_in(values)))
    if wanted.failed:
        found = found.where(_j.status.not_in(("ok", STARTED, INPUT_REQUIRED)))
    if wanted.before is not None:
        found = found.where(_j.seq < wanted.before)
    if wanted.since is not None:
        found = found.where(_j.started_at >= wanted.since)
    if wanted.until is not None:
        found = found.where(_j.started_at < wanted.until)
    return found


def _last_runs(connection: Connection, session_id: str, count: int) -> list[str]:
    """Return the last `count` runs, the newest first, reading one entry for each."""
    runs: list[str] = []
    while len(runs) < count:
        newest = select(_j.run).where(
            _j.session_id == session_id, _j.run.is_not(None), _j.run.not_in(runs)
        )
        found = connection.scalar(newest.order_by(_j.seq.desc()).limit(1))
        if found is None:
            break
        runs.append(found)
    return runs


def receipt(connection: Connection, session_id: str, operation_id: str) -> ReceiptRecord | None:
    given = {"session_id": session_id, "operation_id": operation_id}
    row = connection.execute(_RECEIPT, given).first()
    return None if row is None else rows.receipt_record(mapping(row))


def receipts(connection: Connection, session_id: str) -> tuple[int, int]:
    row = connection.execute(_RECEIPTS, {"session_id": session_id}).one()
    return int(row[0]), int(row[1])


def all_receipts(connection: Connection, session_id: str) -> list[ReceiptRecord]:
    found = connection.execute(_ALL_RECEIPTS, {"session_id": session_id})
    return [rows.receipt_record(mapping(row)) for row in found]


def summary(connection: Connection, session_id: str) -> SummaryRecord | None:
    row = connection.execute(_SUMMARY, {"session_id": session_id}).first()
    return None if row is None else rows.summary_record(mapping(row))


_COUNTS = (
    select(_j.kind, _j.tool, _j.status, _j.role, func.count())
    .where(_j.session_id == _this)
    .group_by(_j.kind, _j.tool, _j.status, _j.role)
)
_RUNS = select(func.count(_j.run.distinct())).where(_j.session_id == _this)
_COMPACTED = select(_j.request).where(
    _j.session_id == _this, _j.kind == JournalKind.COMPACTED.value
)
_ENDS = select(_j.seq, _j.started_at).where(_j.session_id == _this).limit(1)


def journal_counts(connection: Connection, session_id: str) -> JournalCounts:
    """Count the entries of a journal, compacted ones included. Started calls are counted as such."""
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
        else:
            continue
        entries += count
    runs = connection.scalar(_RUNS, this) or 0
    for request in connection.scalars(_COMPACTED, this):
        counted = loads(request)
        entries += counted["entries"]
        transitions += counted["transitions"]
        runs += counted["runs"]
        for tool, by_status in counted["calls"].items():
            into = calls.setdefault(tool, {})
            for status, count in by_status.items():
                into[status] = into.get(status, 0) + count
        for role, count in counted["messages"].items():
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


__all__ = ["OTHERS", "all_receipts", "page", "receipt", "receipts", "summary", "journal_counts"]
