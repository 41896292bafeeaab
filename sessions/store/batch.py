"""The work inside one transaction of the writer.

A batch is a sequence of units in the order they arrived. Neighbouring changes are merged per session and written with one
statement per kind, and so are neighbouring creates. Every other unit runs by itself, in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import Any, NoReturn, TypeAlias

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Table,
    bindparam,
    delete,
    literal_column,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import Update

from ..errors import InvalidArgument, SessionFenced
from ..journal.entries import CallEntry
from ..records import JournalKind
from . import creation, schema
from .compaction import Compactor
from .creation import NewSession
from .dialect import among, execute_many, fetch, is_database_fault, pack_ids, upsert, violation_of
from .events import outbox
from .people import audit_queries
from .people.audit_queries import AuditAppend
from .rows import Change, JournalAppend, Row, to_journal_append
from .sealing.keyring import seal_rows

WriteFunction: TypeAlias = Callable[[Connection], Any]
"""A unit that runs by itself."""

Work: TypeAlias = Change | JournalAppend | CallEntry | NewSession | AuditAppend | WriteFunction


@dataclass(slots=True, eq=False)
class BatchItem:
    """One unit of work and its outcome. A unit without a future has no waiter, and counts for the share of its owner."""

    work: Work
    future: asyncio.Future[Any] | None = None
    owner: str = ""
    value: Any = None
    error: Exception | None = None


def apply(connection: Connection, units: Sequence[BatchItem], compactor: Compactor) -> None:
    """Run units and note the outcome of each.

    Raises the error of a unit; then the transaction must be rolled back as a whole.
    """
    for unit in units:
        if isinstance(unit.work, CallEntry):
            unit.work = _prepare_entry(unit.work)
    audits = [unit.work for unit in units if isinstance(unit.work, AuditAppend)]
    if audits:
        # Together, for one lock of the end of their chain: they do not depend on the other units.
        audit_queries.append(connection, audits)
        units = [unit for unit in units if not isinstance(unit.work, AuditAppend)]
    for kind, group in groupby(units, key=_kind):
        items = list(group)
        if kind is Change:
            _change(connection, items, compactor)
        elif kind is NewSession:
            _create(connection, items)
        else:
            for unit in items:
                _operate(connection, unit)


def isolate(connection: Connection, units: Sequence[BatchItem], compactor: Compactor) -> None:
    """Run units so that one that cannot be applied fails alone: halve the batch until it is found."""
    try:
        with connection.begin_nested():
            apply(connection, units, compactor)
    except Exception as error:
        if is_database_fault(error):
            raise
        if len(units) == 1:
            units[0].error = refusal(units[0], error)
            return
        middle = len(units) // 2
        isolate(connection, units[:middle], compactor)
        isolate(connection, units[middle:], compactor)


def refusal(unit: BatchItem, error: Exception) -> Exception:
    """Return the error for the waiter of a unit whose values were refused. Any other error is returned as it is."""
    if not isinstance(error, DBAPIError | UnicodeError | OverflowError):
        return error
    match violation_of(error):
        case "name":
            return creation.name_taken(_name(unit.work))
        case "id":
            return InvalidArgument("There is a session of this id already.")
        case "other":
            return not_storable()


def not_storable() -> InvalidArgument:
    return InvalidArgument("A value cannot be stored: too large, or not valid text.")


def _name(work: Work) -> str | None:
    return work.session.get("name") if isinstance(work, Change | NewSession) else None


def _kind(unit: BatchItem) -> type:
    return Change if isinstance(unit.work, JournalAppend) else type(unit.work)


def _prepare_entry(entry: CallEntry) -> JournalAppend | WriteFunction:
    try:
        return to_journal_append(entry)
    except Exception as error:
        # The unit fails alone, as any that cannot be applied; the message holds nothing of its content.
        return partial(_fail, InvalidArgument(f"It cannot be made ({type(error).__name__})."))


def _fail(error: Exception, _: Connection) -> NoReturn:
    raise error


def _operate(connection: Connection, unit: BatchItem) -> None:
    assert callable(unit.work)
    unit.error = None
    unit.value = unit.work(connection)


def _create(connection: Connection, units: Sequence[BatchItem]) -> None:
    works = [unit.work for unit in units if isinstance(unit.work, NewSession)]
    for unit, error in zip(units, creation.create(connection, works), strict=True):
        unit.error = error


_FENCES = (
    select(schema.session.c.id, schema.session.c.node, schema.session.c.epoch)
    .where(among(schema.session.c.id))
    .order_by(schema.session.c.id)  # so that two processes lock in one order
    .with_for_update()
)


_FENCE = (
    select(schema.session.c.id, schema.session.c.node, schema.session.c.epoch)
    .where(schema.session.c.id == bindparam("id"))
    .with_for_update()
)


def _fences(connection: Connection, ids: set[str]) -> Sequence[Any]:
    if len(ids) == 1:  # as most batches are of one session, and this takes a fifth of the time
        return fetch(connection, _FENCE, {"id": next(iter(ids))})
    return fetch(connection, _FENCES, {"ids": pack_ids(ids)})


def _change(connection: Connection, units: Sequence[BatchItem], compactor: Compactor) -> None:
    """Apply the changes that hold their fence.

    A change that releases the session fences those behind it, as if each had been a transaction of its own.
    """
    works = [(unit, unit.work) for unit in units if isinstance(unit.work, Change | JournalAppend)]
    result = _fences(connection, {work.session_id for _, work in works})
    owners: dict[str, tuple[str | None, int]] = {row[0]: (row[1], row[2]) for row in result}
    changes = _MergedChanges()
    for unit, work in works:
        if owners.get(work.session_id) != (work.node, work.epoch):
            unit.error = SessionFenced(work.session_id)
            continue
        unit.error = None
        if isinstance(work, JournalAppend):
            changes.journal.append(work.row)
            continue
        changes.add(work)
        if "node" in work.session:
            owners[work.session_id] = (work.session["node"], work.epoch)
    changes.store(connection, compactor)


class _MergedChanges:
    """Several changes merged into one; the later one wins."""

    def __init__(self) -> None:
        self._sessions: dict[str, Row] = {}
        self._unbound: dict[tuple[str, str], Row] = {}
        self._bindings: dict[tuple[str, str], Row] = {}
        self._states: dict[str, Row] = {}
        self._at = 0.0
        self._snapshots: dict[tuple[str, str, int], Row] = {}
        self.journal: list[Row] = []
        self._ended_entries: list[Row] = []
        self._receipts: dict[tuple[str, str], Row] = {}
        self._deleted_receipts: dict[tuple[str, str], Row] = {}
        self._summaries: dict[str, Row] = {}

    def add(self, change: Change) -> None:
        key = change.session_id
        self.journal.extend(change.journal)
        self._ended_entries.extend(change.ended_entries)
        for operation in change.forget:
            self._receipts.pop((key, operation), None)
            self._deleted_receipts[key, operation] = _key(key, operation)
        for row in change.receipts:
            self._receipts[key, row["operation_id"]] = row
        if change.summary is not None:
            self._summaries[key] = change.summary
        if change.session:
            self._sessions[key] = {**self._sessions.get(key, {"b_id": key}), **change.session}
        for service in change.unbind:
            self._unbind(key, service)
        for row in change.bindings:
            self._bindings[key, row["service"]] = row
        for row in change.snapshots:
            self._snapshots[key, row["service"], row["seq"]] = row
        if change.state is not None:
            self._states[key], self._at = change.state, change.at

    def _unbind(self, key: str, service: str) -> None:
        self._unbound[key, service] = _key(key, service)
        self._bindings.pop((key, service), None)
        for snapshot_key in [
            snapshot_key for snapshot_key in self._snapshots if snapshot_key[:2] == (key, service)
        ]:
            del self._snapshots[snapshot_key]

    def store(self, connection: Connection, compactor: Compactor) -> None:
        by_columns: dict[tuple[str, ...], list[Row]] = {}
        for row in self._sessions.values():
            by_columns.setdefault(tuple(sorted(row)), []).append(row)
        saved_bindings = [_key(*key) for key in {snapshot[:2] for snapshot in self._snapshots}]
        for statement, rows in (
            *((_update(columns), rows) for columns, rows in by_columns.items()),
            *((statement, [*self._unbound.values()]) for statement in _UNBIND),
            (_BINDINGS, [*self._bindings.values()]),
            (_STATES, [*self._states.values()]),
            (_JOURNAL, self.journal),
            (_JOURNAL, self._ended_entries),
            (_FORGET, [*self._deleted_receipts.values()]),
            (_RECEIPTS, [*self._receipts.values()]),
            (_SUMMARIES, [*self._summaries.values()]),
            (_SNAPSHOTS, [*self._snapshots.values()]),
            (_OLD_SNAPSHOTS, saved_bindings),
        ):
            if rows:
                sealed_rows = seal_rows(connection, statement.table, rows)
                execute_many(connection, statement, sealed_rows)
        # Nearly all batches have calls without files only, which are no events.
        entries = [
            row
            for row in (*self.journal, *self._ended_entries)
            if row["kind"] != JournalKind.CALL or outbox.FILES in (row["facts"] or "")
        ]
        receipts, states = self._receipts.values(), self._states.values()
        if entries or receipts or states:
            outbox.add(connection, entries, receipts, states, self._at)
        compactor.count_entries(connection, self.journal, self._ended_entries)


def _key(session_id: str, name: str) -> Row:
    """Return the parameters of a statement for one service or operation of a session."""
    return {"b_id": session_id, "b_service": name}


@cache
def _update(columns: tuple[str, ...]) -> Update:
    values: dict[str, BindParameter[Any]] = {
        column: bindparam(column) for column in columns if column != "b_id"
    }
    return update(schema.session).where(schema.session.c.id == bindparam("b_id")).values(values)


def _of_service(table: Table) -> ColumnElement[bool]:
    return (table.c.session_id == bindparam("b_id")) & (table.c.service == bindparam("b_service"))


_UNBIND = [delete(table).where(_of_service(table)) for table in (schema.binding, schema.snapshot)]

_FORGET = delete(schema.receipt).where(
    schema.receipt.c.session_id == bindparam("b_id"),
    schema.receipt.c.operation_id == bindparam("b_service"),
)

_BINDINGS, _STATES, _JOURNAL, _RECEIPTS, _SUMMARIES, _SNAPSHOTS = map(
    upsert,
    (
        *(schema.binding, schema.state, schema.journal),
        *(schema.receipt, schema.summary, schema.snapshot),
    ),
)

_seq = schema.snapshot.alias().c.seq

_OLD_SNAPSHOTS = delete(schema.snapshot).where(
    _of_service(schema.snapshot),
    schema.snapshot.c.seq
    <= select(_seq)
    .where(_of_service(_seq.table))
    .order_by(_seq.desc())
    .offset(literal_column("2"))
    .limit(literal_column("1"))
    .scalar_subquery(),
)
"""Deletes all but the last two snapshots of a binding."""
