"""The codes, links and logins of the console, and the logins of the authorization server.

The functions that write run in a transaction of the writer."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from ...records import CredentialKind, CredentialRecord, Record
from .. import schema
from ..dialect import among, pack_ids
from ..rows import Row, columns_of, credential_record, credential_row


class OAuthRecord(Record):
    """A login at the authorization server, or an identity assertion that was used."""

    digest: str
    """SHA-256 of the id of the login, or of the assertion, in hexadecimal digits."""
    secret: str
    """SHA-256 of the only code or refresh token that the login accepts now; of an assertion, empty."""
    owner: str = ""
    """The key of the person; of an assertion, empty."""
    document: str
    expires_at: float


_c = schema.credential.c
_o = schema.oauth.c
_EXPIRING = (_c.expires_at, _o.expires_at, schema.approval.c.ends_at)
_OPEN = select(_c.digest).where(among(_c.digest))
_WITH_LOGINS = delete(schema.credential).where(or_(among(_c.id), among(_c.link)))


def add(connection: Connection, record: CredentialRecord, *, most: int) -> None:
    """Insert a credential.

    Of more than `most` of its kind, its principal and its session, the oldest are deleted; others never are.
    """
    _add(connection, credential_row(record), most)


def _add(connection: Connection, row: Row, most: int) -> None:
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
    """Return a credential by the digest of its secret, whether it has expired or not."""
    row = connection.execute(select(schema.credential).where(_c.digest == digest)).first()
    return None if row is None else credential_record(columns_of(row))


def exchange(
    connection: Connection, digest: str, login: CredentialRecord, *, most: int
) -> CredentialRecord | None:
    """Exchange a code, or the code of a link, for a login, and return the login. Of concurrent exchanges one wins.

    `login` has its id, its digest and its times; the rest comes from the code. A login by a link ends with the link.
    Returns None if there is no such code, or it was used, or expires at `login.created_at` or earlier.
    """
    now = login.created_at
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
    row = {**credential_row(login), **of_code}
    _add(connection, row, most)
    return credential_record(row)


def add_once(connection: Connection, record: CredentialRecord, *, most: int) -> bool:
    """Insert as add() does, unless there is one with its digest: False then. Of concurrent ones, one returns True."""
    try:
        with connection.begin_nested():
            add(connection, record, most=most)
    except IntegrityError:
        return False
    return True


def open_digests(connection: Connection, digests: Sequence[str]) -> set[str]:
    """Return those digests that have a credential."""
    return set(connection.scalars(_OPEN, {"ids": pack_ids(digests)}))


def links(connection: Connection, session_id: str, now: float) -> list[CredentialRecord]:
    """Return the links to a session that have not expired, the oldest first."""
    statement = select(schema.credential).where(
        _c.kind == CredentialKind.LINK.value, _c.session_id == session_id, _c.expires_at > now
    )
    rows = connection.execute(statement.order_by(_c.created_at))
    return [credential_record(columns_of(row)) for row in rows]


def delete_link(connection: Connection, session_id: str, link: str) -> CredentialRecord | None:
    """Delete a link and its login. Return the link, None if the session has none with this id."""
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
    """Delete all logins of a user: a principal by its key, a guest by the link, or the user of the machine."""
    connection.execute(
        delete(schema.credential).where(
            _c.kind == CredentialKind.LOGIN.value,
            _c.principal.is_not_distinct_from(principal),
            _c.link.is_not_distinct_from(link),
        )
    )


def add_oauth(connection: Connection, record: OAuthRecord) -> bool:
    """Insert a record. Return False if there is one with its digest."""
    if oauth_record(connection, record.digest) is not None:
        return False
    try:
        # Another process may add it at the same time.
        with connection.begin_nested():
            connection.execute(insert(schema.oauth), record.model_dump())
    except IntegrityError:
        return False
    return True


def oauth_record(connection: Connection, digest: str) -> OAuthRecord | None:
    """Return a record, whether it has expired or not."""
    row = connection.execute(select(schema.oauth).where(_o.digest == digest)).first()
    return None if row is None else OAuthRecord.model_validate(dict(columns_of(row)))


def exchange_oauth(connection: Connection, record: OAuthRecord, secret: str, now: float) -> bool:
    """Replace a record that has not expired and whose secret still is `secret`. Of concurrent callers one gets True."""
    # The statement decides, not a row that was read: another process may exchange it at the same time.
    this = (_o.digest == record.digest, _o.secret == secret, _o.expires_at > now)
    return (
        connection.execute(update(schema.oauth).where(*this).values(record.model_dump())).rowcount
        == 1
    )


def delete_oauth(connection: Connection, digest: str) -> None:
    connection.execute(delete(schema.oauth).where(_o.digest == digest))


def have_expired(connection: Connection, now: float) -> bool:
    """Whether credentials, OAuth records or approvals have expired."""
    return any(
        connection.scalar(select(end).where(end <= now).limit(1)) is not None for end in _EXPIRING
    )


def delete_expired(connection: Connection, now: float) -> None:
    """Delete the credentials, OAuth records and approvals that have expired."""
    for end in _EXPIRING:
        connection.execute(delete(end.table).where(end <= now))
