"""The revoked principals. The functions that write run in a transaction of the writer."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, fields

from sqlalchemy import Connection, delete, insert, or_, select

from ...principals.revocations import RevocationRecord
from .. import schema
from ..rows import Row, columns_of

_r = schema.revocation.c
_c = schema.credential.c
_COLUMNS = select(*(_r[field.name] for field in fields(RevocationRecord))).order_by(_r.revoked_at)


def put(connection: Connection, record: RevocationRecord) -> None:
    """Store a revocation in place of an earlier one of the principal.

    It ends the logins of the principal, also those of clients, and the links to its sessions.
    """
    _delete(connection, record.owner)
    row = {**asdict(record), "keeps_sessions": int(record.keeps_sessions)}
    connection.execute(insert(schema.revocation), {"digest": _digest(record.owner), **row})
    own = select(schema.session.c.id).where(schema.session.c.owner == record.owner)
    is_ended = or_(_c.principal == record.owner, _c.session_id.in_(own))
    connection.execute(delete(schema.credential).where(is_ended))
    connection.execute(delete(schema.oauth).where(schema.oauth.c.owner == record.owner))


def _delete(connection: Connection, owner: str) -> bool:
    this = _r.digest == _digest(owner)
    return bool(connection.execute(delete(schema.revocation).where(this)).rowcount)


def restore(connection: Connection, owner: str) -> bool:
    """End a revocation, and the logins that began before every node knew of it. Return False if there is none."""
    connection.execute(delete(schema.credential).where(_c.principal == owner))
    return _delete(connection, owner)


def all_records(connection: Connection) -> list[RevocationRecord]:
    """Return all revocations, also those that have ended by themselves, the oldest first."""
    return [_record(dict(columns_of(row))) for row in connection.execute(_COLUMNS)]


def _record(row: Row) -> RevocationRecord:
    row["keeps_sessions"] = bool(row["keeps_sessions"])
    return RevocationRecord(**row)


def _digest(owner: str) -> str:
    # The length of a key has no bound.
    return hashlib.sha256(owner.encode(errors="surrogatepass")).hexdigest()
