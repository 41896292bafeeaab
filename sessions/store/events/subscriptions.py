"""Subscriptions to events by webhook, and the deliveries that wait for their hosts.

The functions that write run in a transaction of the writer. A subscription is deleted with its deliveries.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, select, update

from .. import schema
from ..dialect import among, pack_ids
from ..sealing.keyring import open_row, seal_rows
from . import outbox
from .records import EventDelivery, Subscription

ROTATION_SECONDS: Final = 300.0
"""Seconds for which deliveries are signed with the former secret too."""

_s, _d = schema.subscription.c, schema.delivery.c


_COLUMNS: Final = [_s[each.name] for each in fields(Subscription)]


def find(connection: Connection, subscription_id: str) -> Subscription | None:
    row = connection.execute(select(*_COLUMNS).where(_s.id == subscription_id)).first()
    return None if row is None else Subscription(**open_row(connection, row, schema.subscription))


def put(connection: Connection, subscription: Subscription, *, most: int) -> bool:
    """Store a subscription, or refresh the one with its id: its dead deliveries are tried again, with all attempts counted.

    Returns False if its owner has `most` others. A former secret is kept for ROTATION_SECONDS. Subscriptions that have
    expired are deleted.
    """
    now, this = subscription.created_at, _s.id == subscription.id
    _delete(connection, _s.expires_at <= now)
    former = find(connection, subscription.id)
    if former is None:
        count = select(func.count()).where(_s.owner == subscription.owner)
        if connection.execute(count).scalar_one() >= most:
            return False
        row = seal_rows(connection, schema.subscription, [asdict(subscription)])
        connection.execute(insert(schema.subscription), row)
        outbox.mark_queued(connection)
        return True
    values: dict[str, Any] = {
        "id": subscription.id,
        "owner": subscription.owner,
        "secret": subscription.secret,
        "expires_at": subscription.expires_at,
    }
    if former.secret != subscription.secret:
        values |= {"old_secret": former.secret, "old_secret_ends_at": now + ROTATION_SECONDS}
    [row] = seal_rows(connection, schema.subscription, [values])
    connection.execute(update(schema.subscription).where(this).values(row))
    dead = (_d.subscription_id == subscription.id, _d.due_at.is_(None))
    connection.execute(update(schema.delivery).where(*dead).values(due_at=now))
    outbox.mark_queued(connection)
    return True


def is_verified(connection: Connection, owner: str, url: str, secret: str, now: float) -> bool:
    """Whether a principal has a subscription with this URL and this secret, so that the URL has met a challenge."""
    these = select(_s.id, _s.url, _s.secret).where(_s.owner == owner, _s.expires_at > now)
    # Compared here: they may be sealed.
    rows = [open_row(connection, row, schema.subscription) for row in connection.execute(these)]
    return any((row["url"], row["secret"]) == (url, secret) for row in rows)


def polled(connection: Connection, now: float) -> list[str]:
    """Return the ids of the subscriptions to events of services."""
    these = (_s.source.is_not(None), _s.expires_at > now)
    return list(connection.scalars(select(_s.id).where(*these)))


def delete_one(connection: Connection, subscription_id: str) -> bool:
    """Delete a subscription. Return False if there is none."""
    return _delete(connection, _s.id == subscription_id)


def delete_of_owner(connection: Connection, owner: str) -> bool:
    return _delete(connection, _s.owner == owner)


def delete_of_session(connection: Connection, session_id: str) -> bool:
    return _delete(connection, _s.session_id == session_id)


def delete_expired(connection: Connection, now: float) -> None:
    """Delete the expired subscriptions, and the deliveries without one: another transaction may add some meanwhile."""
    _delete(connection, _s.expires_at <= now)
    known = exists().where(_s.id == _d.subscription_id)
    connection.execute(delete(schema.delivery).where(~known))


def _delete(connection: Connection, *conditions: ColumnElement[bool]) -> bool:
    ids = list(connection.scalars(select(_s.id).where(*conditions)))
    for column in (_d.subscription_id, _s.id) if ids else ():
        connection.execute(delete(column.table).where(among(column)), {"ids": pack_ids(ids)})
    return bool(ids)


def due_hosts(connection: Connection) -> dict[str, float | None]:
    """Return the hosts of all subscriptions, each with the time at which its first delivery is due, None without one."""
    hosts = select(_s.host).distinct().subquery()
    first = select(func.min(_d.due_at)).where(_d.host == hosts.c.host, _d.due_at.is_not(None))
    query = select(hosts.c.host, first.scalar_subquery())
    return {row[0]: row[1] for row in connection.execute(query)}


def claim(
    connection: Connection, host: str, now: float, lease_ends_at: float, most: int, after: str = ""
) -> list[EventDelivery]:
    """Return due deliveries for a host: as many of each subscription, in turn from the one behind the id `after`.

    No other process claims them before `lease_ends_at`. Those of subscriptions that have expired or are gone are deleted
    when no other is due.
    """
    is_due = _d.due_at <= now
    known = select(*_COLUMNS).where(_s.host == host, _s.expires_at > now)
    has_due = exists().where(_d.subscription_id == _s.id, is_due)
    in_turn = known.where(has_due).order_by(_s.id <= after, _s.id).limit(most)
    subscriptions = [
        Subscription(**open_row(connection, row, schema.subscription))
        for row in connection.execute(in_turn)
    ]
    if not subscriptions:
        live = exists().where(_s.id == _d.subscription_id, _s.expires_at > now)
        connection.execute(delete(schema.delivery).where(_d.host == host, is_due, ~live))
    deliveries: list[EventDelivery] = []
    for subscription in subscriptions:
        query = select(schema.delivery).where(_d.subscription_id == subscription.id, is_due)
        query = query.order_by(_d.due_at).limit(most // len(subscriptions))
        for row in connection.execute(query.with_for_update(skip_locked=True)).all():
            attempts = row.attempts + 1
            values = {"due_at": lease_ends_at, "attempts": attempts}
            this = _this(subscription.id, row.event_id)
            connection.execute(update(schema.delivery).where(*this).values(values))
            body = open_row(connection, row, schema.delivery)["body"]
            deliveries.append(EventDelivery(subscription, row.event_id, body, attempts))
    return deliveries


def finish(connection: Connection, subscription_id: str, event_id: str) -> None:
    """Delete a delivery that ended."""
    connection.execute(delete(schema.delivery).where(*_this(subscription_id, event_id)))


def retry(
    connection: Connection, delivery: EventDelivery, due_at: float | None, attempts: int
) -> None:
    """Send a delivery again at a time, after so many attempts; None: not before its subscription is refreshed."""
    values = {"due_at": due_at, "attempts": attempts}
    this = _this(delivery.subscription.id, delivery.event_id)
    connection.execute(update(schema.delivery).where(*this).values(values))


def _this(subscription_id: str, event_id: str) -> tuple[ColumnElement[bool], ...]:
    return (_d.subscription_id == subscription_id, _d.event_id == event_id)
