"""Keeping journals bounded: if a session has too many entries, one entry with counts replaces the oldest ones.

It runs in the transaction of the writer that added the entries, and a bounded number of entries at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, String, bindparam, delete, select, update

from ..journal.entries import OVERHEAD, STARTED
from ..json_codec import dumps, loads
from ..owned_map import BoundedMap
from ..policy import JournalLimits
from ..records import JournalKind
from . import schema
from .dialect import accumulate, among, execute_many, pack_ids, upsert
from .rows import Row, columns_of
from .sealing.keyring import open_row

PASS = 2000
"""Most entries of one pass; a batch adds fewer, so that passes keep up."""
ROOM = 0.1
"""Share of a limit that a pass frees, so that one pass serves many new entries."""
NAMES = 100
"""Most tools and roles that are counted by name; the others are counted together."""
OTHERS = "(others)"
MAX_KNOWN = 10_000
"""Sessions whose growth is remembered."""

_j = schema.journal.c
_t = schema.tally.c

_FULL = select(schema.tally).where(
    among(_t.session_id),
    (_t.entries > bindparam("most_entries")) | (_t.bytes > bindparam("most_bytes")),
)
_TALLY = accumulate(schema.tally)
_this = bindparam("b_session", type_=String())
_over = _j.status.is_distinct_from(STARTED)
_OLDEST = (
    select(_j.seq, _j.kind, _j.tool, _j.status, _j.role, _j.run, _j.started_at, _j.bytes)
    .where(_j.session_id == _this, _over)
    .order_by(_j.seq)
    .limit(PASS)
)
_DELETE = delete(schema.journal).where(_j.session_id == _this, _j.seq <= bindparam("b_last"), _over)
_COUNTED = select(_j.session_id, _j.seq, _j.request).where(
    _j.session_id == _this, _j.seq == bindparam("b_seq")
)
_TAKE = (
    update(schema.tally)
    .where(_t.session_id == _this)
    .values(entries=_t.entries - bindparam("b_entries"), bytes=_t.bytes - bindparam("b_bytes"))
)


class Compactor:
    """Keeps the journals of one store within limits. Used by its writer alone."""

    def __init__(self, limits: JournalLimits | None) -> None:
        self._limits = limits
        self._growth = BoundedMap[str, list[int]](MAX_KNOWN)

    def grown_journals(self, sums: Iterable[Row]) -> list[str]:
        """Return the journals to check: those that grew by a hundredth of a limit since the last check."""
        if self._limits is None:
            return []
        grown: list[str] = []
        most, most_bytes = self._limits.entries // 100, self._limits.bytes // 100
        for row in sums:
            key: str = row["session_id"]
            growth = self._growth.get(key)
            if growth is None:
                # A journal that was not seen before may be full already.
                growth = self._growth[key] = [most, most_bytes]
            growth[0] += row["entries"]
            growth[1] += row["bytes"]
            if growth[0] >= most or growth[1] >= most_bytes:
                grown.append(key)
                growth[:] = 0, 0
        return grown

    def forget_growth(self, session_id: str) -> None:
        """Check a journal again with its next entry."""
        self._growth.pop(session_id, None)

    def count_entries(
        self, connection: Connection, new: Iterable[Row], ended_rows: Iterable[Row]
    ) -> None:
        """Count entries that were just written, and compact the journals that exceed a limit."""
        sums = _sums(new, ended_rows)
        if not sums:
            return
        execute_many(connection, _TALLY, [*sums.values()])
        due = self.grown_journals(sums.values())
        if not due or self._limits is None:
            return
        limits = self._limits
        parameters = {
            "ids": pack_ids(due),
            "most_entries": limits.entries,
            "most_bytes": limits.bytes,
        }
        for full in connection.execute(_FULL, parameters).all():
            _compact(connection, full.session_id, full.entries, full.bytes, limits)
            self.forget_growth(full.session_id)


def _sums(new: Iterable[Row], ended_rows: Iterable[Row]) -> dict[str, Row]:
    sums: dict[str, Row] = {}
    for count, rows in ((1, new), (0, ended_rows)):
        for row in rows:
            key = row["session_id"]
            sums_of_session = sums.setdefault(key, {"session_id": key, "entries": 0, "bytes": 0})
            sums_of_session["entries"] += count
            sums_of_session["bytes"] += row["bytes"]
    return sums


def _compact(
    connection: Connection, session_id: str, entries: int, size: int, limits: JournalLimits
) -> None:
    """Compact until there is room again, for at most one pass; the next batch continues."""
    this = {"b_session": session_id}
    too_many = entries - int(limits.entries * (1 - ROOM))
    too_large = size - int(limits.bytes * (1 - ROOM))
    oldest: list[Mapping[str, Any]] = []
    freed_bytes = 0
    for row in connection.execute(_OLDEST, this):
        if len(oldest) > too_many and freed_bytes >= too_large:
            break
        oldest.append(columns_of(row))
        freed_bytes += row.bytes
    if len(oldest) < 2:
        return
    last = oldest[-1]["seq"]
    # A compacted entry need not be the first: a call that began before it may have ended since.
    earlier = [row["seq"] for row in oldest if row["kind"] == JournalKind.COMPACTED]
    earlier_counts: dict[int, Mapping[str, Any]] = {}
    for seq in earlier:
        found = connection.execute(_COUNTED, {**this, "b_seq": seq}).one()
        text = open_row(connection, found, schema.journal)["request"]
        if text is not None:
            earlier_counts[seq] = loads(text)
    epoch = _epoch(connection, session_id)
    connection.execute(_DELETE, {**this, "b_last": last})
    row = _entry(session_id, epoch, oldest, earlier_counts)
    execute_many(connection, upsert(schema.journal), [row])
    removed = {"b_entries": len(oldest) - 1, "b_bytes": freed_bytes - row["bytes"]}
    connection.execute(_TAKE, {**this, **removed})


def _epoch(connection: Connection, session_id: str) -> int:
    statement = select(schema.session.c.epoch).where(schema.session.c.id == session_id)
    return connection.scalar(statement) or 0


def _entry(
    session_id: str,
    epoch: int,
    oldest: list[Mapping[str, Any]],
    earlier_counts: Mapping[int, Mapping[str, Any]],
) -> Row:
    request = dumps(_counts(oldest, earlier_counts))
    plain = ("service", "tool", "status", "run", "role", "operation_id", "result", "error", "facts")
    return {
        **dict.fromkeys(plain),
        "session_id": session_id,
        "seq": oldest[-1]["seq"],
        "kind": JournalKind.COMPACTED.value,
        "epoch": epoch,
        "started_at": oldest[0]["started_at"],
        "ended_at": oldest[-1]["started_at"],
        "generation": 0,
        "request": request,
        "bytes": OVERHEAD + len(request.encode(errors="replace")),
    }


def _counts(
    oldest: list[Mapping[str, Any]], earlier_counts: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """Count the entries; a compacted one adds the counts in it (`earlier_counts`, by position)."""
    calls: dict[str, dict[str, int]] = {}
    messages: dict[str, int] = {}
    transitions = runs = entries = 0
    last_run: str | None = None
    for row in oldest:
        if row["kind"] == JournalKind.COMPACTED:
            earlier = earlier_counts.get(row["seq"], {})
            for name, statuses in earlier.get("calls", {}).items():
                _add(calls.setdefault(_counted_name(name, calls), {}), statuses)
            _add(messages, earlier.get("messages", {}), limit_names=True)
            transitions += earlier.get("transitions", 0)
            entries += earlier.get("entries", 0)
            runs += earlier.get("runs", 0)
            last_run = earlier.get("last_run") or last_run
            continue
        entries += 1
        if row["run"] is not None and row["run"] != last_run:
            runs, last_run = runs + 1, row["run"]
        if row["kind"] == JournalKind.CALL:
            _add(calls.setdefault(_counted_name(row["tool"], calls), {}), {row["status"] or "?": 1})
        elif row["kind"] == JournalKind.MESSAGE:
            _add(messages, {row["role"]: 1}, limit_names=True)
        elif row["kind"] == JournalKind.TRANSITION:
            transitions += 1
    starts = [row["seq"] for row in oldest] + [
        counts.get("from", seq) for seq, counts in earlier_counts.items()
    ]
    return {
        "entries": entries,
        "from": min(starts),
        "to": oldest[-1]["seq"],
        "calls": calls,
        "messages": messages,
        "transitions": transitions,
        "runs": runs,
        "last_run": last_run,
    }


def _add(
    counts: dict[str, int], more: Mapping[str | None, int], *, limit_names: bool = False
) -> None:
    for name, count in more.items():
        key = _counted_name(name, counts) if limit_names else name or "?"
        counts[key] = counts.get(key, 0) + count


def _counted_name(name: str | None, counts: Mapping[str, object]) -> str:
    label = name or "?"
    return label if label in counts or len(counts) < NAMES else OTHERS
