"""The logins of the authorization server. The functions that write run in a transaction of the writer."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ...principals.oauth import OAuthRecord
from .. import schema
from ..rows import Row, columns_of

_c = schema.oauth.c


def add(connection: Connection, row: Row) -> bool:
    if record(connection, row["digest"]) is not None:
        return False
    try:
        # Another process may add it at the same time.
        with connection.begin_nested():
            connection.execute(insert(schema.oauth), row)
    except IntegrityError:
        return False
    return True


def record(connection: Connection, digest: str) -> OAuthRecord | None:
    row = connection.execute(select(schema.oauth).where(_c.digest == digest)).first()
    return None if row is None else OAuthRecord.model_validate(dict(columns_of(row)))


def exchange(connection: Connection, row: Row, secret: str, now: float) -> bool:
    """Replace a record that has not expired and still has this secret."""
    # The statement decides, not a row that was read: another process may exchange it at the same time.
    this = (_c.digest == row["digest"], _c.secret == secret, _c.expires_at > now)
    return connection.execute(update(schema.oauth).where(*this).values(row)).rowcount == 1


def delete_one(connection: Connection, digest: str) -> None:
    connection.execute(delete(schema.oauth).where(_c.digest == digest))


def has_expired(connection: Connection, now: float) -> bool:
    statement = select(_c.digest).where(_c.expires_at <= now).limit(1)
    return connection.scalar(statement) is not None


def delete_expired(connection: Connection, now: float) -> None:
    connection.execute(delete(schema.oauth).where(_c.expires_at <= now))
