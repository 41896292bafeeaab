"""The codes, links and logins of the console. The functions that write run in a transaction of the writer."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from ...records import CredentialKind, CredentialRecord
from .. import schema
from ..dialect import among, pack_ids
from ..rows import Row, columns_of, credential_record

_c = schema.credential.c
_OPEN = select(_c.digest).where(among(_c.digest))
_WITH_LOGINS = delete(schema.credential).where(or_(among(_c.id), among(_c.link)))


def add(connection: Connection, row: Row, most: int) -> None:
    """Insert a credential, and delete the oldest beyond `most` of those of its kind, its principal and its session."""
    connection.execute(insert(schema.credential), row)
    same = (
        _c.kind == row["kind"],
        _c.principal.is_not_distinct_from(row["principal"]),
        _c.session_id.is_not_distinct_from(row["session_id"]),
    )
    newest_first = select(_c.id).where(*same).order_by(_c.created_at.desc())
    oldest = list(connection.scalars(newest_first.offset(most)))
    if oldest:
        connection.execute(_WITH_LOGINS, {"ids": pack_ids(oldest)})


def credential(connection: Connection, digest: str) -> CredentialRecord | None:
    row = connection.execute(select(schema.credential).where(_c.digest == digest)).first()
    return None if row is None else credential_record(columns_of(row))


def exchange(connection: Connection, digest: str, login: Row, most: int) -> CredentialRecord | None:
    """Exchange a code for a login, and return the login."""
    now: float = login["created_at"]
    code = credential(connection, digest)
    if code is None:
        return None
    # The statement decides, not the row that was read: another process may exchange the code at the same time.
    this = (_c.digest == digest, _c.expires_at > now)
    if code.kind is CredentialKind.CODE:
        used = connection.execute(delete(schema.credential).where(*this))
    else:
        unused = (*this, _c.kind == CredentialKind.LINK.value, _c.used_at.is_(None))
        used = connection.execute(update(schema.credential).where(*unused).values(used_at=now))
    if used.rowcount != 1:
        return None
    of_code: Row = {
        key: getattr(code, key) for key in ("name", "principal", "rights", "session_id")
    }
    if code.kind is CredentialKind.LINK:
        of_code |= {"link": code.id, "expires_at": code.expires_at}
    row = {**login, **of_code}
    add(connection, row, most)
    return credential_record(row)


def add_once(connection: Connection, row: Row, most: int) -> bool:
    """Insert a credential, unless there is one with its digest. Return whether it was inserted."""
    try:
        with connection.begin_nested():
            add(connection, row, most)
    except IntegrityError:
        return False
    return True


def open_digests(connection: Connection, digests: Sequence[str]) -> set[str]:
    return set(connection.scalars(_OPEN, {"ids": pack_ids(digests)}))


def links(connection: Connection, session_id: str, now: float) -> list[CredentialRecord]:
    statement = select(schema.credential).where(
        _c.kind == CredentialKind.LINK.value, _c.session_id == session_id, _c.expires_at > now
    )
    rows = connection.execute(statement.order_by(_c.created_at))
    return [credential_record(columns_of(row)) for row in rows]


def delete_link(connection: Connection, session_id: str, link: str) -> CredentialRecord | None:
    """Delete a link and its login. Return the link."""
    this = (
        _c.kind == CredentialKind.LINK.value,
        _c.session_id == session_id,
        _c.id == link,
    )
    row = connection.execute(select(schema.credential).where(*this)).first()
    if row is None or not connection.execute(delete(schema.credential).where(*this)).rowcount:
        return None
    connection.execute(delete(schema.credential).where(_c.link == link))
    return credential_record(columns_of(row))


def delete_login(connection: Connection, digest: str) -> None:
    kind = CredentialKind.LOGIN.value
    connection.execute(delete(schema.credential).where(_c.digest == digest, _c.kind == kind))


def delete_logins(connection: Connection, principal: str | None, link: str | None) -> None:
    """Delete all logins of a user."""
    connection.execute(
        delete(schema.credential).where(
            _c.kind == CredentialKind.LOGIN.value,
            _c.principal.is_not_distinct_from(principal),
            _c.link.is_not_distinct_from(link),
        )
    )


def has_expired(connection: Connection, now: float) -> bool:
    statement = select(_c.digest).where(_c.expires_at <= now).limit(1)
    return connection.scalar(statement) is not None


def delete_expired(connection: Connection, now: float) -> None:
    connection.execute(delete(schema.credential).where(_c.expires_at <= now))
