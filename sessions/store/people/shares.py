"""The shares of sessions. The functions that write run in a transaction of the writer."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, insert, or_, select

from ...lifecycle import Status
from ...records import SessionRecord, ShareRecord, ShareRights
from .. import schema
from ..dialect import among, pack_ids
from ..rows import columns_of, session_record, share_record, share_row
from ..sealing.keyring import open_row

_t = schema.session_share.c
_s = schema.session.c


def put(connection: Connection, record: ShareRecord, *, most: int) -> bool:
    """Store a share, in place of one with the same grantee. Return False if the session has `most` others."""
    row = share_row(record)
    of_session = delete(schema.session_share).where(_t.session_id == row["session_id"])
    replaced = or_(_t.grantee == row["grantee"], _t.expires_at <= row["created_at"])
    connection.execute(of_session.where(replaced))
    others = select(func.count()).where(_t.session_id == row["session_id"])
    if connection.execute(others).scalar_one() >= most:
        return False
    connection.execute(insert(schema.session_share), row)
    return True


def delete_one(connection: Connection, session_id: str, grantee: str) -> bool:
    """Delete the share with the digest of a grantee. Return False if there is none."""
    this = (_t.session_id == session_id, _t.grantee == grantee)
    return bool(connection.execute(delete(schema.session_share).where(*this)).rowcount)


def of_session(connection: Connection, session_id: str, now: float) -> list[ShareRecord]:
    """Return the shares of a session that have not expired, the oldest first."""
    statement = select(schema.session_share).where(_t.session_id == session_id, _t.expires_at > now)
    rows = connection.execute(statement.order_by(_t.created_at, _t.grantee))
    return [share_record(columns_of(row)) for row in rows]


def owner(
    connection: Connection,
    session_id: str,
    grantees: Sequence[str],
    rights: Sequence[ShareRights],
    now: float,
) -> str | None:
    """Return the key of the owner of a session that is shared with one of the grantees, with one of the rights."""
    statement = select(_s.owner).join(schema.session_share, _t.session_id == _s.id)
    statement = statement.where(_s.id == session_id, among(_t.grantee), _t.expires_at > now)
    statement = statement.where(_t.rights.in_([each.value for each in rights])).limit(1)
    return connection.scalar(statement, {"ids": pack_ids(grantees)})


def sessions(
    connection: Connection,
    grantees: Sequence[str],
    statuses: Sequence[Status],
    now: float,
    limit: int,
) -> list[tuple[SessionRecord, ShareRights]]:
    """Return the sessions with one of the statuses that are shared with the grantees, those used last first, with the rights
    of each share. Beyond the limit, the owner with the most loses the one that was used longest ago.
    """
    statement = select(schema.session, _t.rights).join(schema.session_share, _t.session_id == _s.id)
    statement = statement.where(among(_t.grantee), _t.expires_at > now)
    statement = statement.where(_s.status.in_([each.value for each in statuses]))
    # Anybody can share any number with a person, and must not hide the shares of others.
    newest_first = (_s.used_at.desc(), _s.id)
    turn = func.row_number().over(partition_by=_s.owner, order_by=newest_first)
    statement = statement.order_by(turn, *newest_first).limit(limit)
    found: list[tuple[SessionRecord, ShareRights]] = []
    for row in connection.execute(statement, {"ids": pack_ids(grantees)}):
        columns = dict(open_row(connection, row, schema.session))
        rights = ShareRights(columns.pop("rights"))
        found.append((session_record(columns), rights))
    return sorted(found, key=lambda each: (-each[0].used_at, each[0].id))
