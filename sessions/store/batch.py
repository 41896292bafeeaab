"""What happens inside one transaction of the writer.

A batch is a sequence of units in the order they arrived. Neighbouring changes are merged per session and go out as one
statement per kind, and so do neighbouring creates. Everything else runs by itself, in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

from sqlalchemy import Connection, bindparam, delete, select, update

from ..errors import Fenced, InvalidArgument, NameTaken
from . import creation, schema
from .creation import Creation
from .dialect import among, blames_value, packed, upsert, violated
from .rows import Change, Row

Operation: TypeAlias = Callable[[Connection], Any]
"""A step of its own. It refuses before it writes anything, or not at all."""


@dataclass(slots=True, eq=False)
class Unit:
    """One thing to do, and what became of it. Nobody waits for a unit without a future."""

    work: Change | Creation | Operation
    future: asyncio.Future[Any] | None = None
    value: Any = None
    error: Exception | None = None


def apply(connection: Connection, units: Sequence[Unit]) -> None:
    """Run units and note the outcome of each.

    Raises whatever the database raised; then nothing of the transaction may be kept.
    """
    for kind, found in groupby(units, key=lambda unit: type(unit.work)):
        run = list(found)
        if kind is Change:
            _change(connection, run)
        elif kind is Creation:
            _create(connection, run)
        else:
            for unit in run:
                _operate(connection, unit)


def isolate(connection: Connection, units: Sequence[Unit]) -> None:
    """Run units so that one whose values the database refuses fails alone: halve until it is found."""
    try:
        with connection.begin_nested():
            apply(connection, units)
    except Exception as error:
        if not blames_value(error):
            raise
        if len(units) == 1:
            units[0].error = refusal(units[0], error)
            return
        middle = len(units) // 2
        isolate(connection, units[:middle])
        isolate(connection, units[middle:])


def refusal(unit: Unit, error: Exception) -> Exception:
    """What the waiter of a unit is told when the database refused its values."""
    match violated(error):
        case "name":
            return name_taken(_name(unit.work))
        case "operation":
            return InvalidArgument("This operation id was used before in this session.")
        case "id":
            return InvalidArgument("There is a session of this id already.")
        case "other":
            return InvalidArgument("A value cannot be stored: too large, or not valid text.")


def name_taken(name: str | None) -> NameTaken:
    return NameTaken(f"There is an open session named {name!r} already.")


def _name(work: Change | Creation | Operation) -> str | None:
    return work.session.get("name") if isinstance(work, Change | Creation) else None


def _operate(connection: Connection, unit: Unit) -> None:
    assert callable(unit.work)
    unit.error = None
    unit.value = unit.work(connection)


def _create(connection: Connection, units: Sequence[Unit]) -> None:
    works = [unit.work for unit in units if isinstance(unit.work, Creation)]
    for unit, error in zip(units, creation.create(connection, works), strict=True):
        unit.error = error


_FENCES = select(schema.session.c.id, schema.session.c.node, schema.session.c.epoch).where(
    among(schema.session.c.id)
)


def _change(connection: Connection, units: Sequence[Unit]) -> None:
    """Apply the changes that hold their fence.

    A change that releases the session fences those behind it, as if each had been a transaction of its own.
    """
    works = [(unit, unit.work) for unit in units if isinstance(unit.work, Change)]
    ids = packed(sorted({work.session_id for _, work in works}))
    found = connection.execute(_FENCES, {"ids": ids})
    owners: dict[str, tuple[str | None, int]] = {row[0]: (row[1], row[2]) for row in found}
    merged: dict[str, _Merged] = {}
    for unit, work in works:
        held = owners.get(work.session_id) == (work.node, work.epoch)
        unit.error = None if held else Fenced(work.session_id)
        if held:
            merged.setdefault(work.session_id, _Merged()).add(work)
            if "node" in work.session:
                owners[work.session_id] = (work.session["node"], work.epoch)
    _store(connection, merged)


@dataclass(slots=True)
class _Merged:
    """Several changes of one session as one: what is later wins."""

    session: Row = field(default_factory=dict[str, Any])
    bindings: dict[str, Row] = field(default_factory=dict[str, Row])
    unbind: set[str] = field(default_factory=set[str])
    state: Row | None = None
    snapshots: dict[tuple[str, int], Row] = field(default_factory=dict[tuple[str, int], Row])
    journal: dict[int, Row] = field(default_factory=dict[int, Row])

    def add(self, change: Change) -> None:
        self.session.update(change.session)
        for service in change.unbind:
            self.unbind.add(service)
            self.bindings.pop(service, None)
            for key in [key for key in self.snapshots if key[0] == service]:
                del self.snapshots[key]
        self.bindings.update((row["service"], row) for row in change.bindings)
        self.snapshots.update(((row["service"], row["seq"]), row) for row in change.snapshots)
        self.journal.update((row["seq"], row) for row in change.journal)
        self.state = change.state or self.state


_UPDATE = update(schema.session).where(schema.session.c.id == bindparam("b_id"))


def _of_service(table: Any) -> Any:
    return (table.c.session_id == bindparam("b_id")) & (table.c.service == bindparam("b_service"))


_UNBIND = [delete(table).where(_of_service(table)) for table in (schema.binding, schema.snapshot)]

_OLD_SNAPSHOTS = delete(schema.snapshot).where(
    _of_service(schema.snapshot),
    schema.snapshot.c.seq
    <= select(schema.snapshot.c.seq)
    .where(_of_service(schema.snapshot))
    .order_by(schema.snapshot.c.seq.desc())
    .offset(2)
    .limit(1)
    .correlate(None)
    .scalar_subquery(),
)


def _store(connection: Connection, merged: dict[str, _Merged]) -> None:
    parts = merged.values()
    _update_sessions(connection, merged)
    unbound = _keys((key, service) for key, part in merged.items() for service in part.unbind)
    for statement in _UNBIND:
        _many(connection, statement, unbound)
    for table, rows in (
        (schema.binding, [row for part in parts for row in part.bindings.values()]),
        (schema.state, [part.state for part in parts if part.state is not None]),
        (schema.snapshot, [row for part in parts for row in part.snapshots.values()]),
        (schema.journal, [row for part in parts for row in part.journal.values()]),
    ):
        _many(connection, upsert(table), rows)
    saved = {(key, service) for key, part in merged.items() for service, _ in part.snapshots}
    _many(connection, _OLD_SNAPSHOTS, _keys(saved))


def _update_sessions(connection: Connection, merged: dict[str, _Merged]) -> None:
    by_columns: dict[tuple[str, ...], list[Row]] = {}
    for key, part in merged.items():
        if part.session:
            columns = tuple(sorted(part.session))
            by_columns.setdefault(columns, []).append({"b_id": key, **part.session})
    for rows in by_columns.values():
        _many(connection, _UPDATE, rows)


def _keys(pairs: Iterable[tuple[str, str]]) -> list[Row]:
    return [{"b_id": key, "b_service": service} for key, service in pairs]


def _many(connection: Connection, statement: Any, rows: list[Row]) -> None:
    if rows:
        connection.execute(statement, rows)
