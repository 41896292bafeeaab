"""Logins at services: one row for each owner and name, with a sealed value that only its users can open.

At most one process renews a login at a time. It has a lease, which ends by itself, so that a process that dies keeps nobody
waiting; and what it writes is fenced by the version that it has read. The functions that write run in a transaction of the
writer.

A login of a browser is lent to one session at a time, by the same lease: it is lent while `session` is not empty and its
lease has not ended. Taking it and each new value raise the version, so that a session that lost it writes no more. A lease
that has run out, and is not 0, was not given back: the value may be old.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Final, NamedTuple, cast

from sqlalchemy import ColumnElement, Connection, and_, case, delete, insert, or_, select, update

from ..errors import StoreUnavailable
from . import schema
from .base import LENDABLE, NEEDS_HUMAN, OK, RENEWING, REVOKED, UNCHECKED, LoginRecord, login_id
from .events import outbox
from .rows import columns_of
from .sealing.encryption import DecryptionFailed
from .sealing.keyring import Keyring, owner_digest
from .transactions import Queries, Transactions, read_method, write_method

USED_SECONDS: Final = 300.0
"""Seconds in which one record stands for all uses of a login."""
_l = schema.login.c
_COLUMNS: Final = [_l[each.name] for each in fields(LoginRecord)]


def _this(owner: str, name: str) -> ColumnElement[bool]:
    return _l.id == login_id(owner, name)


def find(connection: Connection, owner: str, name: str) -> LoginRecord | None:
    row = connection.execute(select(*_COLUMNS).where(_this(owner, name))).first()
    return None if row is None else LoginRecord(**columns_of(row))


def page(connection: Connection, owner: str | None = None) -> list[LoginRecord]:
    """Return the logins of an owner, or all, by owner and name."""
    query = select(*_COLUMNS).order_by(_l.owner, _l.name)
    if owner is not None:
        query = query.where(_l.owner == owner)
    rows = connection.execute(query)
    return [LoginRecord(**columns_of(row)) for row in rows]


def overview(connection: Connection, kind: str) -> list[LoginRecord]:
    """Return the logins of a kind without their values."""
    columns = [column for column in _COLUMNS if column is not _l.sealed]
    rows = connection.execute(select(*columns).where(_l.kind == kind))
    return [LoginRecord(**columns_of(row), sealed=b"") for row in rows]


def that_need_human(connection: Connection, owner: str | None, most: int) -> list[LoginRecord]:
    """Return the first logins that need their person, of an owner or all, without their values."""
    columns = [column for column in _COLUMNS if column is not _l.sealed]
    query = select(*columns).where(_l.state == NEEDS_HUMAN)
    if owner is not None:
        query = query.where(_l.owner == owner)
    rows = connection.execute(query.order_by(_l.since).limit(most))
    return [LoginRecord(**columns_of(row), sealed=b"") for row in rows]


def put(connection: Connection, login: LoginRecord) -> bool:
    """Store a new login in place of the one with its owner and name. Its version is higher, and its renewals count on.

    Return False if that one is of another kind, and stays.
    """
    former = find(connection, login.owner, login.name)
    if former is not None and former.kind != login.kind:
        return False
    if former is not None:
        version = max(login.version, former.version + 1)
        login = replace(login, version=version, renewals=login.renewals or former.renewals)
    connection.execute(delete(schema.login).where(_this(login.owner, login.name)))
    key = {"id": login_id(login.owner, login.name)}
    connection.execute(insert(schema.login), asdict(login) | key)
    return True


def lease(
    connection: Connection, owner: str, name: str, version: int, now: float, ends_at: float
) -> bool:
    """Let the caller renew a login until `ends_at`, under the next version. Return False if another process does, or has."""
    free = (_l.version == version, _l.state == OK, _l.lease_ends_at <= now)
    statement = update(schema.login).where(_this(owner, name), *free)
    values = {"version": version + 1, "lease_ends_at": ends_at}
    return connection.execute(statement.values(values)).rowcount == 1


def renew(
    connection: Connection, login: LoginRecord, sealed: bytes, expires_at: float | None
) -> bool:
    """Give a login that is leased its new value. Return False if it has another one by now."""
    values = {
        "sealed": sealed,
        "expires_at": expires_at,
        "version": login.version + 1,
        "lease_ends_at": 0.0,
    }
    return _change(connection, login, values)


def release(connection: Connection, login: LoginRecord) -> bool:
    """End the lease of a login that was not renewed."""
    return _change(connection, login, {"lease_ends_at": 0.0})


def end(connection: Connection, login: LoginRecord, reason: str, now: float) -> bool:
    """Record that a login needs its person. Return False if it has another value by now."""
    state = {"state": NEEDS_HUMAN, "reason": reason, "since": now}
    return _change(connection, login, {**state, "version": login.version + 1, "lease_ends_at": 0.0})


def revoke(connection: Connection, owner: str, name: str, now: float) -> bool:
    """End the use of a login, also by a process that renews it. Return False if there is none."""
    values = {"state": REVOKED, "reason": "", "since": now, "version": _l.version + 1}
    statement = update(schema.login).where(_this(owner, name))
    return connection.execute(statement.values(values | {"lease_ends_at": 0.0})).rowcount == 1


def _record_use(connection: Connection, login: LoginRecord, now: float) -> None:
    this = _this(login.owner, login.name)
    connection.execute(update(schema.login).where(this).values(used_at=now))


def _same(login: LoginRecord) -> ColumnElement[bool]:
    return _l.version == login.version


def _change(
    connection: Connection,
    login: LoginRecord,
    values: Mapping[str, object],
    *conditions: ColumnElement[bool],
) -> bool:
    this = (_this(login.owner, login.name), _same(login), *conditions)
    needs_human = values.get("state") == NEEDS_HUMAN
    is_new = needs_human and connection.scalar(select(_l.state).where(*this)) != NEEDS_HUMAN
    is_changed = connection.execute(update(schema.login).where(*this).values(values)).rowcount == 1
    if is_changed and is_new:
        key, since = [login.owner, login.name, login.version], cast("float", values["since"])
        data = {"owner": login.owner, "login": login.name}
        outbox.add_notice(connection, "login_needed", key, since, **data)
    return is_changed


def delete_one(connection: Connection, owner: str, name: str) -> bool:
    """Delete a login. Return False if there is none."""
    return connection.execute(delete(schema.login).where(_this(owner, name))).rowcount == 1


class Standing(NamedTuple):
    """The part of a login's row that tells its holder whether it still has it."""

    version: int
    session: str
    state: str


def take(
    connection: Connection,
    new: LoginRecord,
    session: str | None,
    now: float,
    ends_at: float,
    *,
    is_log_in: bool = False,
) -> LoginRecord | None:
    """Lend a login to a session until `ends_at` and return it; `new` is stored if it does not exist yet.

    A session takes again what it had, also before the lease ends: the one process that owns the session asks for it. Without
    a session it is lent for a check or a renewal, and the session that had it may take it again afterwards. A session in
    which its person logs in gets it in any state, which stays until it is given back. Return None if another one has the
    login, or its state forbids it.
    """
    found = find(connection, new.owner, new.name)
    if found is None:
        put(connection, found := new)
    values: dict[str, object] = {
        "version": found.version + 1,
        "lease_ends_at": ends_at,
        "in_check": 1,
    }
    if session is not None:
        values |= {"session": session, "used_at": now, "in_check": 0}
    if found.state == OK and found.lease_ends_at:
        values |= {"state": UNCHECKED, "since": now, "checked_at": None}
    free = _l.lease_ends_at <= now
    if session is not None:
        free = or_(free, and_(_l.session == session, _l.in_check == 0))
    conditions = [free, _l.kind == new.kind]
    if not is_log_in:
        states = LENDABLE if session is not None else (*LENDABLE, RENEWING)
        conditions.append(_l.state.in_(states))
    if not _change(connection, found, values, *conditions):
        return None
    return find(connection, new.owner, new.name)


def held_by(connection: Connection, session: str) -> list[LoginRecord]:
    """Return the logins that a session has, or had last, by owner and name."""
    statement = select(*_COLUMNS).where(_l.session == session).order_by(_l.owner, _l.name)
    return [LoginRecord(**columns_of(row)) for row in connection.execute(statement)]


def write_value(connection: Connection, login: LoginRecord, sealed: bytes) -> bool:
    """Store the new value and the state of a login that is lent, whose lease goes on. Return False if the lease was lost."""
    values = {name: getattr(login, name) for name in ("state", "since", "reason")}
    return _change(connection, login, {**values, "sealed": sealed, "version": login.version + 1})


def record_check(connection: Connection, login: LoginRecord) -> bool:
    """Store the outcome of a check or a renewal, whose lease goes on. Return False if the lease was lost."""
    names = ("state", "since", "reason", "checked_at", "renewals")
    return _change(connection, login, {name: getattr(login, name) for name in names})


def request_check(connection: Connection, owner: str, name: str, kind: str) -> bool:
    """Ask for a check as soon as nobody has a login, also of one that needs its person. Return False if there is none."""
    state = case((_l.state == NEEDS_HUMAN, UNCHECKED), else_=_l.state)
    statement = update(schema.login).where(_this(owner, name), _l.kind == kind)
    return connection.execute(statement.values(state=state, checked_at=None)).rowcount == 1


def give_back(connection: Connection, login: LoginRecord) -> bool:
    """End the lease of a login, with its value and state. Return False if the lease was lost.

    A session leaves whether it takes the login again, a check when it was. Meanwhile the login may have been taken back from
    the one, and a check asked for.
    """
    names = ["sealed", "state", "since", "reason"]
    if not login.in_check:
        names.append("session")
    if login.in_check or login.checked_at is None:
        names.append("checked_at")
    values = {name: getattr(login, name) for name in names}
    return _change(
        connection,
        login,
        {**values, "version": login.version + 1, "lease_ends_at": 0.0, "in_check": 0},
    )


def extend(connection: Connection, logins: Collection[LoginRecord], ends_at: float) -> None:
    """Extend the leases of logins, but of those that have another version by now."""
    same = [and_(_this(each.owner, each.name), _same(each)) for each in logins]
    connection.execute(update(schema.login).where(or_(*same)).values(lease_ends_at=ends_at))


def standings(
    connection: Connection, logins: Collection[LoginRecord]
) -> dict[tuple[str, str], Standing]:
    """Return how logins stand now, by owner and name."""
    ids = [login_id(each.owner, each.name) for each in logins]
    columns = (_l.owner, _l.name, _l.version, _l.session, _l.state)
    rows = connection.execute(select(*columns).where(_l.id.in_(ids)))
    return {(owner, name): Standing(*standing) for owner, name, *standing in rows}


def take_back(connection: Connection, owner: str, name: str) -> bool:
    """Ask the session that has a login to give it back. Return False if none has it."""
    statement = update(schema.login).where(_this(owner, name), _l.session != "")
    return connection.execute(statement.values(session="")).rowcount == 1


class LoginStore(Queries):
    """The logins, as methods of the store. It lives as long as its store."""

    def __init__(self, transactions: Transactions, keyring: Keyring) -> None:
        super().__init__(transactions)
        self._keyring = keyring

    async def seal(self, owner: str, name: str, value: str) -> bytes:
        """Return the sealed value of a login of a principal; it opens as that of this login alone.

        Raises:
            StoreUnavailable: there is no key, or the store does not answer.
        """
        await self._keyring.load()
        try:
            key = await self.transactions.read(lambda each: self._keyring.find_key(each, owner))
            if key is None:
                key = await self.transactions.write(lambda each: self._keyring.key_of(each, owner))
        except DecryptionFailed as error:
            raise StoreUnavailable(error.message) from None
        return key.seal_bytes(value.encode(), login_id(owner, name).encode())

    async def open(self, login: LoginRecord) -> bytes:
        """Return the value of a login.

        Raises:
            StoreUnavailable: it is sealed with another key, or there is none.
        """
        await self._keyring.load()
        owner, place = owner_digest(login.owner), login_id(login.owner, login.name).encode()
        try:
            return await self.transactions.read(
                lambda each: self._keyring.open_bytes(each, login.sealed, place, owner)
            )
        except DecryptionFailed as error:
            raise StoreUnavailable(
                f"the login {login.name} cannot be opened: {error.message}"
            ) from None

    find = read_method(find)
    page = read_method(page)
    overview = read_method(overview)
    that_need_human = read_method(that_need_human)
    put = write_method(put)
    lease = write_method(lease)
    renew = write_method(renew)
    release = write_method(release)
    end = write_method(end)
    revoke = write_method(revoke)
    delete = write_method(delete_one)
    take = write_method(take)
    held_by = read_method(held_by)
    write_value = write_method(write_value)
    record_check = write_method(record_check)
    request_check = write_method(request_check)
    give_back = write_method(give_back)
    extend = write_method(extend)
    standings = read_method(standings)
    take_back = write_method(take_back)

    async def note_use(self, login: LoginRecord, now: float) -> None:
        """Record that a login is used, at most once in USED_SECONDS. It may be used although that cannot be written."""
        if now >= (login.used_at or 0.0) + USED_SECONDS:
            with suppress(StoreUnavailable):
                await self.transactions.write(lambda each: _record_use(each, login, now))
