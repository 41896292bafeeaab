"""Ownership of sessions: nodes, claims, and the release of the sessions of dead nodes.

Each function runs in a transaction of the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    null,
    select,
    update,
)

from ..errors import OutcomeUnknown
from ..journal.entries import STARTED
from ..json_codec import dumps
from ..lifecycle import OPEN, Event, Status
from ..records import BindingStatus, JournalKind, NodeRecord, NodeState
from . import queries, schema
from .base import RESTARTED, ClaimedSession
from .dialect import among, earlier, pack_ids
from .events import outbox, subscriptions
from .rows import Row, node_row

_s = schema.session.c
_n = schema.node.c
_j = schema.journal.c
_r = schema.receipt.c
_t = schema.tally.c

RESTART = "server_restart"


def join(connection: Connection, node: NodeRecord) -> None:
    """Register a process as a node. Called once, before any claim."""
    connection.execute(insert(schema.node), node_row(node))


def declare_dead(connection: Connection, node: str) -> bool:
    """Mark a node dead, permanently. Call it on proof, or for this process. Return False if it was dead already."""
    result = connection.execute(
        update(schema.node)
        .where(_n.id == node, _n.state != NodeState.DEAD.value)
        .values(state=NodeState.DEAD.value)
    )
    return result.rowcount > 0


_living = exists().where(_n.id == _s.node, _n.state != NodeState.DEAD.value)
_abandoned = _s.node.is_not(None) & ~_living
"""Sessions whose owner is dead. A node without a row is dead too: the row was deleted when no session named the node."""


_this = _s.id == bindparam("session_id", type_=String())
_me = bindparam("me", type_=String())

_ABANDONED = select(_s.id).where(_this, _abandoned)
_ALL_ABANDONED = select(_s.id).where(_abandoned)

_these = among(_s.id)
_LOCK = select(_s.id).where(_these).order_by(_s.id).with_for_update()
_STILL_ABANDONED = select(_s.id, _s.status).where(_these, _abandoned)

_CLAIM = (
    update(schema.session)
    .where(
        _this,
        _s.status.in_(sorted(OPEN)),
        _s.node.is_(None) | (_s.node == _me),
        exists().where(_n.id == _me, _n.state == NodeState.UP.value),
    )
    .values(node=_me, epoch=_s.epoch + 1)
)


def claim(
    connection: Connection, session_id: str, node: str, now: float, retention: float
) -> ClaimedSession | None:
    """Make a node the owner, if the session is open and has no owner, a dead one, or the node itself.

    One statement raises the epoch. Returns None when another node owns it, or it is closed or gone. Concurrent claims have
    one winner. The session of a dead owner is released first.
    """
    if connection.scalar(_ABANDONED, {"session_id": session_id}) is not None:
        _release(connection, [session_id], now, retention)
    result = connection.execute(_CLAIM, {"session_id": session_id, "me": node})
    return queries.load_session(connection, session_id) if result.rowcount else None


def adopt(
    connection: Connection,
    dead: Sequence[str],
    now: float,
    retention: float,
    heir: str | None = None,
) -> list[str]:
    """Pause every session that dead nodes left open (T20) and return their ids; delete the nodes.

    Sessions left `creating` are closed with reason `server_restart`, `closing` ones are closed; those are not returned. The
    epoch rises, the owner becomes None, `due_at` follows the paused timeout, open bindings become `lost`, and each
    transition is in the journal. The heir becomes the owner of those that `dead` left with connections that may outlive
    their process. The time is proportional to the changes.
    """
    if dead:
        connection.execute(
            update(schema.node).where(among(_n.id)).values(state=NodeState.DEAD.value),
            {"ids": pack_ids(dead)},
        )
    session_ids = list(connection.scalars(_ALL_ABANDONED))
    left = {"ids": pack_ids(connection.scalars(_LEFT, {"ids": pack_ids(dead)}) if heir else ())}
    paused_ids = _release(connection, session_ids, now, retention) if session_ids else []
    if heir:
        connection.execute(update(schema.session).where(_INHERITED).values(node=heir), left)
    connection.execute(delete(schema.node).where(_n.state == NodeState.DEAD.value))
    return paused_ids


_PAUSED_BY_RESTART = (Status.IDLE, Status.ACTIVE, Status.ERROR)
_CLOSED_BY_RESTART = (Status.CREATING, Status.CLOSING)


def _release(
    connection: Connection, session_ids: Sequence[str], now: float, retention: float
) -> list[str]:
    # Another process may have released some of them before. Once their rows are locked, it cannot any more.
    connection.execute(_LOCK, {"ids": pack_ids(session_ids)}).all()
    rows = connection.execute(_STILL_ABANDONED, {"ids": pack_ids(session_ids)}).all()
    if not rows:
        return []
    these = {"ids": pack_ids(row.id for row in rows)}
    _mark_outcomes_unknown(connection, these, now)
    _keep_connections(connection, these)
    journalled_ids = [row.id for row in rows if row.status in _TRANSITIONS]
    connection.execute(_journal(now), these)
    connection.execute(
        update(schema.tally).where(among(schema.tally.c.session_id)).values(entries=_t.entries + 1),
        {"ids": pack_ids(journalled_ids)},
    )
    binding = schema.binding.c
    connection.execute(
        update(schema.binding)
        .where(
            among(binding.session_id),
            binding.status.in_([BindingStatus.OPEN.value, BindingStatus.KEPT.value]),
            binding.resume_token.is_(None),
        )
        .values(status=BindingStatus.LOST.value, last_error=RESTARTED, since=now),
        these,
    )
    columns = _released_columns(now, retention)
    connection.execute(update(schema.session).where(_these).ordered_values(*columns.items()), these)
    outbox.add_ended(connection, [row.id for row in rows], now)
    closed_statuses = (Status.CLOSED, *_CLOSED_BY_RESTART)
    return [row.id for row in rows if row.status not in closed_statuses]


_b = schema.binding.c


def _is_resumable(session_id: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition that a session has a connection that may outlive its process."""
    return exists().where(
        _b.session_id == session_id,
        _b.resume_token.is_not(None),
        _b.status.in_([BindingStatus.OPEN.value, BindingStatus.KEPT.value]),
    )


_LEFT = select(_s.id).where(among(_s.node))
_INHERITED = _these & _s.node.is_(None) & (_s.status == Status.PAUSED.value) & _is_resumable(_s.id)


def _keep_connections(connection: Connection, these: Row) -> None:
    """Mark the connections that may outlive their process: the next owner resumes them, or finds them lost."""
    connection.execute(
        update(schema.binding)
        .where(
            among(_b.session_id),
            _b.status == BindingStatus.OPEN.value,
            _b.resume_token.is_not(None),
        )
        .values(status=BindingStatus.KEPT.value),
        these,
    )


def _mark_outcomes_unknown(connection: Connection, these: Row, now: float) -> None:
    """Set every started operation of these sessions to `outcome_unknown`, unless its answer may still come."""
    connection.execute(
        update(schema.receipt)
        .where(
            among(_r.session_id),
            _r.status == STARTED,
            # Only calls to services, which have a journal entry, may still be answered.
            (_r.seq == 0) | ~_is_resumable(_r.session_id),
        )
        .values(status=OutcomeUnknown.code, ended_at=now),
        these,
    )
    connection.execute(
        update(schema.journal)
        .where(among(_j.session_id), _j.status == STARTED, ~_is_resumable(_j.session_id))
        .values(status=OutcomeUnknown.code, ended_at=now, error=RESTARTED),
        these,
    )


def _journal(now: float) -> Any:
    """Return one insert of the transitions of all sessions in a status that they cannot keep."""
    latest = (
        select(func.coalesce(func.max(_j.seq), 0) + 1)
        .where(_j.session_id == _s.id)
        .correlate(schema.session)
        .scalar_subquery()
    )
    request = case(
        *((_s.status == status.value, _transition(status)) for status in _TRANSITIONS),
    )
    values: dict[str, Any] = {
        "session_id": _s.id,
        "seq": latest,
        "kind": literal(JournalKind.TRANSITION.value),
        "epoch": _s.epoch + 1,
        "started_at": literal(now),
        "ended_at": literal(now),
        "generation": literal(0),
        "request": request,
    }
    rows = select(*values.values()).where(
        _these, _s.status.in_([status.value for status in _TRANSITIONS])
    )
    return insert(schema.journal).from_select(list(values), rows)


_TRANSITIONS = {
    Status.IDLE: ("T20", Event.ADOPTED, Status.PAUSED),
    Status.ACTIVE: ("T20", Event.ADOPTED, Status.PAUSED),
    Status.ERROR: ("T20", Event.ADOPTED, Status.PAUSED),
    Status.CREATING: ("T03", Event.OPEN_FAILED, Status.CLOSED),
    Status.CLOSING: ("T18", Event.RELEASED, Status.CLOSED),
}


def _transition(status: Status) -> str:
    code, event, target = _TRANSITIONS[status]
    return dumps({"code": code, "event": event, "from": status, "to": target, "cause": RESTART})


def _released_columns(now: float, retention: float) -> dict[str, Any]:
    """Return the new columns of a released session. MariaDB assigns from left to right, so the status comes last."""
    is_paused = _s.status.in_([status.value for status in _PAUSED_BY_RESTART])
    is_closed = _s.status.in_([status.value for status in _CLOSED_BY_RESTART])
    timeout = case((_s.paused_seconds > 0, _s.paused_seconds + now), else_=null())
    ends = _s.lifetime_ends_at
    due = func.coalesce(earlier(timeout, ends), timeout, ends)
    purge = literal(now + retention) if retention else null()
    return {
        "node": None,
        "epoch": _s.epoch + 1,
        "status_at": case((is_paused | is_closed, now), else_=_s.status_at),
        "reason": case((is_closed, func.coalesce(_s.reason, RESTART)), else_=_s.reason),
        "closed_at": case((is_closed, now), else_=_s.closed_at),
        "due_at": case((is_paused, due), (is_closed, purge), else_=_s.due_at),
        "status": case(
            (is_paused, Status.PAUSED.value), (is_closed, Status.CLOSED.value), else_=_s.status
        ),
    }


def purge(connection: Connection, session_id: str) -> bool:
    """Delete every row of a closed session. Return False when it is open or gone."""
    result = connection.execute(
        delete(schema.session).where(_s.id == session_id, _s.status == Status.CLOSED.value)
    )
    if not result.rowcount:
        return False
    for table in schema.OF_A_SESSION:
        connection.execute(delete(table).where(table.c.session_id == session_id))
    subscriptions.delete_of_session(connection, session_id)
    return True
