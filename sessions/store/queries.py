"""Reading the store. Each function runs single statements on the connection it is given; see SQLStore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, String, bindparam, func, select

from ..journal.entries import OVERHEAD
from ..lifecycle import OPEN
from ..records import (
    BindingRecord,
    JournalRecord,
    NodeRecord,
    NodeState,
    SessionRecord,
    SnapshotRecord,
    StateRecord,
)
from . import journal_queries, rows, schema
from .base import ClaimedSession
from .dialect import among, check_storage, pack_ids, sync
from .rows import columns_of
from .sealing.keyring import name_forms, open_row

ROW_BYTES: Final = 1000
"""Approximate bytes of a session besides its state, snapshots and journal."""

_s = schema.session.c
# Built once: building a statement takes as long as running it.
_this = bindparam("session_id", type_=String())
_GET = select(schema.session).where(_s.id == _this)
_GET_OWNED = _GET.where(_s.owner == bindparam("owner", type_=String()))
_NAMED = select(schema.session).where(
    _s.owner == bindparam("owner", type_=String()),
    _s.namespace == bindparam("namespace", type_=String()),
    _s.name == bindparam("name", type_=String()),
)
_FIND = _NAMED.where(schema.IS_OPEN)
_FIND_CLOSED = (
    _NAMED.where(~_s.status.in_(sorted(OPEN))).order_by(_s.status_at.desc(), _s.id).limit(1)
)
_BINDINGS = (
    select(schema.binding)
    .where(schema.binding.c.session_id == _this)
    .order_by(schema.binding.c.service)
)
_STATE = select(schema.state).where(schema.state.c.session_id == _this)
_VERSIONS = select(schema.state.c.session_id, schema.state.c.version).where(
    among(schema.state.c.session_id)
)
_SNAPSHOT = (
    select(schema.snapshot)
    .where(
        schema.snapshot.c.session_id == _this,
        schema.snapshot.c.service == bindparam("service", type_=String()),
    )
    .order_by(schema.snapshot.c.seq.desc())
    .limit(1)
)
_LAST_SEQ = select(func.max(schema.journal.c.seq)).where(schema.journal.c.session_id == _this)


def nodes(connection: Connection) -> list[NodeRecord]:
    """Return the nodes that are not dead."""
    statement = select(schema.node).where(schema.node.c.state != NodeState.DEAD.value)
    result = connection.execute(statement.order_by(schema.node.c.started_at))
    return [rows.node_record(columns_of(row)) for row in result]


def get(connection: Connection, session_id: str, owner: str | None = None) -> SessionRecord | None:
    """Return a session; with `owner`, only one of that owner: the row of another owner is not read."""
    parameters = {"session_id": session_id}
    if owner is None:
        row = connection.execute(_GET, parameters).first()
    else:
        row = connection.execute(_GET_OWNED, {**parameters, "owner": owner}).first()
    return None if row is None else rows.session_record(open_row(connection, row, schema.session))


def find(connection: Connection, owner: str, namespace: str, name: str) -> SessionRecord | None:
    """Return the open session of that name, None if there is none."""
    return _find(connection, _FIND, owner, namespace, name)


def find_closed(
    connection: Connection, owner: str, namespace: str, name: str
) -> SessionRecord | None:
    """Return the session of that name that was closed last, None if there is none."""
    return _find(connection, _FIND_CLOSED, owner, namespace, name)


def _find(
    connection: Connection, statement: Select[Any], owner: str, namespace: str, name: str
) -> SessionRecord | None:
    for form in name_forms(connection, owner, name):
        parameters = {"owner": owner, "namespace": namespace, "name": form}
        row = connection.execute(statement, parameters).first()
        if row is not None:
            return rows.session_record(open_row(connection, row, schema.session))
    return None


_SIZES = (
    (schema.state, func.length(schema.state.c.value) + ROW_BYTES),
    (schema.snapshot, func.length(schema.snapshot.c.data)),
    (schema.tally, schema.tally.c.bytes),
    (schema.receipt, journal_queries.KEPT_BYTES + OVERHEAD),
    (schema.summary, func.length(schema.summary.c.text)),
)
"""The tables that sessions fill, and the bytes of a row."""
_MINE = select(_s.id).where(_s.owner == bindparam("owner", type_=String()))
_USAGE = [
    select(func.coalesce(func.sum(size), 0)).where(table.c.session_id.in_(_MINE))
    for table, size in _SIZES
]
_SIZES_OF = [
    select(table.c.session_id, func.sum(size))
    .where(among(table.c.session_id))
    .group_by(table.c.session_id)
    for table, size in _SIZES
]


def usage(connection: Connection, owner: str) -> int:
    """Return the approximate bytes of an owner's sessions, closed ones included, in time proportional to them."""
    return sum(int(connection.scalar(part, {"owner": owner}) or 0) for part in _USAGE)


def sizes(connection: Connection, session_ids: Sequence[str]) -> dict[str, int]:
    """Return the approximate bytes of each of some sessions that has any."""
    found = Counter[str]()
    for part in _SIZES_OF:
        for session_id, size in connection.execute(part, {"ids": pack_ids(session_ids)}):
            found[session_id] += int(size or 0)
    return dict(found)


def ids(connection: Connection, owner: str) -> list[str]:
    """Return the ids of all sessions of an owner, closed ones included."""
    return [row[0] for row in connection.execute(_MINE, {"owner": owner})]


def counts(connection: Connection, owner: str | None = None) -> dict[str, int]:
    """Return the number of sessions by status, of all owners or of one."""
    statement = select(_s.status, func.count()).group_by(_s.status)
    result = connection.execute(statement if owner is None else statement.where(_s.owner == owner))
    return {row[0]: row[1] for row in result}


def bindings(connection: Connection, session_id: str) -> list[BindingRecord]:
    result = connection.execute(_BINDINGS, {"session_id": session_id})
    return [rows.binding_record(open_row(connection, row, schema.binding)) for row in result]


def state(connection: Connection, session_id: str) -> StateRecord | None:
    row = connection.execute(_STATE, {"session_id": session_id}).first()
    return None if row is None else rows.state_record(open_row(connection, row, schema.state))


def state_versions(connection: Connection, session_ids: Sequence[str]) -> dict[str, int]:
    """Return the versions of the states of those sessions that exist."""
    result = connection.execute(_VERSIONS, {"ids": pack_ids(session_ids)})
    return {row[0]: row[1] for row in result}


def snapshot(connection: Connection, session_id: str, service: str) -> SnapshotRecord | None:
    """Return the newest snapshot of a binding."""
    parameters = {"session_id": session_id, "service": service}
    row = connection.execute(_SNAPSHOT, parameters).first()
    return None if row is None else rows.snapshot_record(open_row(connection, row, schema.snapshot))


def journal(
    connection: Connection, session_id: str, *, last: int = 100, after: int = 0
) -> list[JournalRecord]:
    """Return the last entries with `seq > after`, oldest first."""
    c = schema.journal.c
    statement = select(schema.journal).where(c.session_id == session_id, c.seq > after)
    result = connection.execute(statement.order_by(c.seq.desc()).limit(last))
    return [
        rows.journal_record(open_row(connection, row, schema.journal))
        for row in reversed(result.all())
    ]


def load_session(connection: Connection, session_id: str) -> ClaimedSession:
    """Read all records of a session, in the transaction that claimed it."""
    session = get(connection, session_id)
    assert session is not None
    return ClaimedSession(
        session=session,
        bindings=bindings(connection, session_id),
        state=state(connection, session_id) or StateRecord(session_id=session_id),
        last_seq=connection.scalar(_LAST_SEQ, {"session_id": session_id}) or 0,
    )


_due = (_s.node.is_(None), _s.due_at.is_not(None))


def due(connection: Connection, now: float, limit: int = 100) -> list[SessionRecord]:
    """Return ownerless sessions with `due_at <= now`, the most overdue first (paused: T10, closed: T19)."""
    statement = select(schema.session).where(*_due, _s.due_at <= now)
    result = connection.execute(statement.order_by(_s.due_at).limit(limit))
    return [rows.session_record(open_row(connection, row, schema.session)) for row in result]


def next_due(connection: Connection) -> float | None:
    """Return the earliest `due_at` of an ownerless session."""
    return connection.scalar(select(func.min(_s.due_at)).where(*_due))


def check(connection: Connection) -> list[str]:
    """Ask the database to check itself, then look for rows that belong to no session."""
    faults = check_storage(connection)
    if faults:
        return faults
    for table in schema.OF_A_SESSION:
        orphan = select(func.count()).where(table.c.session_id.not_in(select(_s.id)))
        count = connection.scalar(orphan)
        if count:
            faults.append(f"{table.name}: {count} rows belong to no session")
    stateless = select(func.count()).where(_s.id.not_in(select(schema.state.c.session_id)))
    count = connection.scalar(stateless)
    if count:
        faults.append(f"session: {count} rows have no state")
    return faults


def touch(connection: Connection) -> None:
    """Write an unchanged value, which fails where nothing can be written."""
    if connection.dialect.name == "sqlite":
        sync(connection)


def do_nothing(connection: Connection) -> None:
    """Do nothing. This unit is done when every unit before it is."""
