"""Events of sessions, derived from the rows that a transaction writes, and queued for their subscribers in it.

So an event exists exactly if its cause does, and has the same id after every restart and on every node. The data of an
event are ids and words of ours: a subscriber reads the rest as the caller that it is.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import Connection, and_, bindparam, exists, func, or_, select, update

from ...json_codec import JSON, digest_of, dumps, loads
from ...lifecycle import Status
from ...records import JournalKind, SessionDriver
from ...times import timestamp
from .. import schema
from ..dialect import among, execute_many, pack_ids, upsert
from ..rows import Row, columns_of
from ..sealing.keyring import open_row, seal_rows
from .records import KINDS, OPERATOR, TRANSITIONS, Reason, Subscription, request_id

logger = logging.getLogger("statehold.events")

MAX_QUEUED: Final = 20_000
"""Deliveries that wait for one subscription. Further events are dropped."""
FILES: Final = '"files"'
"""A text in the facts of a call that received files."""
QUEUED: Final = "statehold.events"
"""The key in the info of a connection that is set when a transaction has queued deliveries."""

_j, _r, _s = schema.journal.c, schema.receipt.c, schema.session.c
_sub, _d = schema.subscription.c, schema.delivery.c

_SUBSCRIBED = (
    select(_s.id, _sub.id, _sub.name, _sub.host, _sub.created_at, _sub.expires_at)
    .join(
        schema.subscription,
        or_(
            _sub.session_id == _s.id,
            and_(_sub.session_id == "", or_(_sub.owner == _s.owner, _sub.owner == OPERATOR)),
        ),
    )
    # An import writes the journal of another session while its own is being created.
    .where(among(_s.id), _s.status != Status.CREATING.value)
)
# Most databases have no subscriptions, and need no join.
_ANY = select(_sub.id).limit(1)
_QUEUED_COUNTS = (
    select(_d.subscription_id, func.count())
    .where(among(_d.subscription_id))
    .group_by(_d.subscription_id)
)
_DELIVERIES: Final = upsert(schema.delivery)


def add(
    connection: Connection,
    journal: Iterable[Row],
    receipts: Iterable[Row] = (),
    states: Iterable[Row] = (),
    now: float = 0.0,
    approvals: Iterable[Row] = (),
) -> None:
    """Queue the events of rows that this transaction has written, for each subscription to them.

    `now` is the time of the states. Events beyond MAX_QUEUED are dropped.
    """
    events = [
        *(event for row in journal for event in _of_entry(row)),
        *(event for row in receipts for event in _of_receipt(row)),
        *(_of_state(row, now) for row in states),
        *(_of_approval(row) for row in approvals),
    ]
    if not events or connection.execute(_ANY).first() is None:
        return
    ids = pack_ids({event.session_id for event in events})
    subscribed: dict[tuple[str, str], list[Any]] = {}
    for row in connection.execute(_SUBSCRIBED, {"ids": ids}):
        subscribed.setdefault((row[0], row[2]), []).append(row)
    deliveries = [
        {
            "subscription_id": row[1],
            "event_id": event.document["eventId"],
            "host": row[3],
            "body": dumps(event.document),
            "attempts": 0,
            "due_at": event.at,
        }
        for event in events
        for row in subscribed.get((event.session_id, event.document["name"]), ())
        if row[4] <= event.at < row[5]
    ]
    if deliveries:
        execute_many(connection, _DELIVERIES, _within_limit(connection, deliveries))
        mark_queued(connection)


def add_notice(
    connection: Connection, name: Reason, key: object, now: float, **data: object
) -> None:
    """Queue a notice about something that is no event of a session, unless it is. `key` makes its id unique among those of
    its reason.
    """
    event_id = f"evt_{digest_of(dumps([name, key]))[:32]}"
    this = (_d.subscription_id == _sub.id, _d.event_id == event_id, _d.due_at > now)
    these = (_sub.owner == OPERATOR, _sub.name == name, _sub.expires_at > now)
    query = select(_sub.id, _sub.host).where(*these, ~exists().where(*this))
    subscribed = connection.execute(query).all()
    if not subscribed:
        return
    body = dumps(_document(event_id, name, now, data))
    common = {"event_id": event_id, "body": body, "attempts": 0, "due_at": now}
    rows = [{"subscription_id": row.id, "host": row.host, **common} for row in subscribed]
    execute_many(connection, _DELIVERIES, _within_limit(connection, rows))
    mark_queued(connection)


def add_limit(connection: Connection, owner: str, limit: str, now: float) -> None:
    """Queue the notice that an owner is near a limit: the same one all day."""
    key = [owner, limit, int(now // 86_400)]
    add_notice(connection, "limit_near", key, now, owner=owner, limit=limit)


def add_polled(
    connection: Connection,
    subscription: Subscription,
    source: str,
    documents: Collection[JSON],
    now: float,
) -> bool:
    """Queue events of a service for a subscription, and store how far it was polled.

    Returns False, and changes nothing, if another poll came before, or too many deliveries wait.
    """
    waiting = select(func.count()).where(_d.subscription_id == subscription.id)
    room = MAX_QUEUED - connection.execute(waiting).scalar_one()
    this = _sub.id == subscription.id
    found = connection.execute(select(schema.subscription).where(this).with_for_update()).first()
    if found is None or len(documents) > room:
        return False
    row = open_row(connection, found, schema.subscription)
    if row["source"] != subscription.source:
        return False
    [moved] = seal_rows(connection, schema.subscription, [{**row, "source": source}])
    connection.execute(update(schema.subscription).where(this).values(source=moved["source"]))
    common = {"subscription_id": subscription.id, "host": subscription.host, "attempts": 0}
    # A service may repeat an event.
    bodies = {document["eventId"]: dumps(document) for document in documents}
    rows = [{**common, "event_id": key, "body": bodies[key], "due_at": now} for key in bodies]
    if rows:
        sealed_rows = seal_rows(connection, schema.delivery, rows, subscription.owner)
        execute_many(connection, _DELIVERIES, sealed_rows)
        mark_queued(connection)
    return True


def _within_limit(connection: Connection, deliveries: Iterable[Row]) -> list[Row]:
    ids = pack_ids({row["subscription_id"] for row in deliveries})
    counts = Counter({row[0]: row[1] for row in connection.execute(_QUEUED_COUNTS, {"ids": ids})})
    rows: list[Row] = []
    for row in deliveries:
        counts[row["subscription_id"]] += 1
        if counts[row["subscription_id"]] <= MAX_QUEUED:
            rows.append(row)
        if counts[row["subscription_id"]] == MAX_QUEUED:
            logger.warning("further events for %s are dropped until it takes some", row["host"])
    return rows


def mark_queued(connection: Connection) -> None:
    """Have this process look for deliveries once the transaction is written."""
    connection.info[QUEUED] = True


_ENDED_ENTRIES = select(schema.journal).where(
    among(_j.session_id), _j.kind == JournalKind.TRANSITION.value, _j.ended_at == bindparam("now")
)
_ENDED_RECEIPTS = select(schema.receipt).where(
    among(_r.session_id), _r.ended_at == bindparam("now")
)


def add_ended(connection: Connection, ids: Collection[str], now: float) -> None:
    """Queue the events of the transitions and of the calls of these sessions that statements of SQL ended at `now`."""
    values = {"ids": pack_ids(ids), "now": now}
    ended = connection.execute(_ENDED_ENTRIES, values).all()
    entries = [dict(open_row(connection, row, schema.journal)) for row in ended]
    receipts = [dict(columns_of(row)) for row in connection.execute(_ENDED_RECEIPTS, values)]
    add(connection, entries, receipts)


@dataclass(frozen=True, slots=True)
class _SessionEvent:
    session_id: str
    at: float
    document: JSON
    """The event as its subscribers get it."""


def _event(row: Row, name: str, key: object, at: float, **data: object) -> _SessionEvent:
    """Return an event. `key` makes its id unique in the session of the row."""
    session_id = row["session_id"]
    members = {"sessionId": session_id, **data}
    return _SessionEvent(session_id, at, _document(f"evt_{session_id}_{key}", name, at, members))


def _document(event_id: str, name: str, at: float, data: JSON) -> JSON:
    return {
        "eventId": event_id,
        "name": name,
        "timestamp": timestamp(at),
        "data": data,
        "cursor": None,
    }


def _of_entry(row: Row) -> Iterator[_SessionEvent]:
    kind, seq, at = row["kind"], row["seq"], row["started_at"]
    if kind == JournalKind.CALL:
        # Other facts may have the word, too.
        files: object = loads(row["facts"] or "{}").get("files")
        if isinstance(files, list):
            number, at = len(cast("list[str]", files)), row["ended_at"] or at
            yield _event(row, "download_finished", seq, at, seq=seq, files=number)
    elif kind == JournalKind.TRANSITION:
        request = loads(row["request"] or "{}")
        name = TRANSITIONS.get(request.get("to"))
        if name is not None:
            yield _event(row, name, seq, at, cause=request.get("event"))
    elif kind == JournalKind.CONTROL and row["status"] == SessionDriver.REQUESTED:
        key = request_id(at)
        yield _event(row, "human_needed", key, at, requestId=key)


def _of_receipt(row: Row) -> Iterator[_SessionEvent]:
    operation, ended_at = row["operation_id"], row["ended_at"]
    # The receipts of tasks expire; see sessions/calls/hand_over.py.
    if row["expires_at"] is not None and ended_at is not None:
        task_id = f"{row['session_id']}.{operation}"
        yield _event(row, "task_done", operation, ended_at, taskId=task_id, status=row["status"])


def _of_state(row: Row, at: float) -> _SessionEvent:
    version = row["version"]
    return _event(row, "state_changed", f"v{version}", at, version=version)


def _of_approval(row: Row) -> _SessionEvent:
    key = row["id"]
    return _event(row, "approval_needed", key, row["created_at"], approvalId=key)


def page(connection: Connection, session_id: str, name: str, after: int | None, most: int) -> JSON:
    """Return the result of a poll for the events of one name in KINDS, behind a position in the journal; None: its end."""
    # Entries of one kind are written in the order of their positions; those of others may come later.
    these = (_j.session_id == session_id, _j.kind.in_((KINDS[name], JournalKind.COMPACTED.value)))
    rows: list[Row] = []
    if after is None:
        after = connection.scalar(select(func.max(_j.seq)).where(*these)) or 0
    else:
        query = select(schema.journal).where(*these, _j.seq > after).order_by(_j.seq)
        found = connection.execute(query.limit(most + 1)).all()
        rows = [dict(open_row(connection, row, schema.journal)) for row in found]
    shown = rows[:most]
    found = (event.document for row in shown for event in _of_entry(row))
    return {
        "events": [document for document in found if document["name"] == name],
        "cursor": str(shown[-1]["seq"] if shown else after),
        "hasMore": len(rows) > most,
        "truncated": any(row["kind"] == JournalKind.COMPACTED for row in shown),
    }
