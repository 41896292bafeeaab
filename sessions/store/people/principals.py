"""The memberships and the revocations of principals, and the use of sessions by principal.

The functions that write run in a transaction of the writer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, or_, select, update

from ...json_codec import well_formed
from ...lifecycle import OPEN
from ...principals.rules import (
    DEFAULT_ROLE,
    NO_MEMBERSHIP,
    Membership,
    PolicySubject,
    PolicyTarget,
    PrincipalRecord,
    PrincipalSummary,
    RevocationRecord,
)
from ...records import Principal
from .. import schema
from ..dialect import among, pack_ids, wait_for_exclusive
from ..events import subscriptions
from ..rows import Row, columns_of
from ..sealing.keyring import owner_digest

_p = schema.principal.c
_s = schema.session.c
_CHANGED = select(schema.principal)

_r = schema.revocation.c
_c = schema.credential.c
_REVOCATIONS = select(*(_r[field.name] for field in fields(RevocationRecord))).order_by(
    _r.revoked_at
)


def changed(connection: Connection, after: int) -> list[PrincipalRecord]:
    """Return the rows with a higher version, in the order of their versions."""
    rows = connection.execute(_CHANGED.where(_p.version > after).order_by(_p.version))
    return [_record(columns_of(row)) for row in rows]


def membership(connection: Connection, target: PolicyTarget) -> Membership:
    """Return the groups and the role of a principal, as its last token named them."""
    row = _find(connection, target)
    return NO_MEMBERSHIP if row is None else _record(row).membership


def put_membership(
    connection: Connection, target: PolicyTarget, membership: Membership, now: float
) -> None:
    """Store the groups and the role of a principal."""
    version = _next_version(connection)
    row = _find(connection, target)
    if row is not None:
        # Another process may know other tokens.
        membership = membership.after(_record(row).membership, now)
    groups = {group: membership.ends.get(group, 0.0) for group in membership.groups}
    values = {"member_of": json.dumps(groups), "role": membership.role}
    _put(connection, target, row, {**values, "version": version, "changed_at": now})


def _next_version(connection: Connection) -> int:
    # No other process may write a version between this look and the end of the transaction: readers would miss one.
    wait_for_exclusive(connection, schema.version)
    return (connection.scalar(select(func.max(_p.version))) or 0) + 1


def _find(connection: Connection, target: PolicyTarget) -> Row | None:
    row = connection.execute(_CHANGED.where(_p.digest == target.digest)).first()
    return None if row is None else dict(columns_of(row))


def _put(connection: Connection, target: PolicyTarget, row: Row | None, values: Row) -> None:
    if row is not None:
        statement = update(schema.principal).where(_p.digest == target.digest)
        connection.execute(statement.values(**values))
        return
    first = {
        "digest": target.digest,
        "kind": target.kind.value,
        "issuer": target.issuer,
        "name": target.name,
        "policy": "{}",
        "member_of": "[]",
        "role": DEFAULT_ROLE,
    }
    connection.execute(insert(schema.principal), {**first, **values})


def _record(row: Mapping[str, Any]) -> PrincipalRecord:
    kind = PolicySubject(row["kind"])
    return PrincipalRecord(
        PolicyTarget(kind=kind, issuer=row["issuer"], name=row["name"]),
        _membership(json.loads(row["member_of"]), row["role"]),
        policy="" if row["policy"] == "{}" else row["policy"],
        version=row["version"],
    )


def _membership(stored: list[str] | dict[str, Any], role: str) -> Membership:
    """Return the membership of a row. The first schema has the names of the groups only, without their ends."""
    ends = stored if isinstance(stored, dict) else dict.fromkeys(stored)
    groups = {well_formed(group): end for group, end in ends.items()}
    return Membership(tuple(groups), role, {group: end for group, end in groups.items() if end})


def summaries(connection: Connection) -> Sequence[PrincipalSummary]:
    """Return the principals that have sessions, those that used theirs last first."""
    is_open = case((_s.status.in_(sorted(OPEN)), 1), else_=0)
    used_at = func.max(_s.used_at)
    statement = select(_s.owner, func.sum(is_open), func.count(), used_at).group_by(_s.owner)
    rows = connection.execute(statement.order_by(used_at.desc()))
    return [PrincipalSummary(row[0], int(row[1]), int(row[2]), float(row[3])) for row in rows]


def revoke(connection: Connection, record: RevocationRecord) -> None:
    """Store a revocation in place of an earlier one of the principal.

    It ends the logins of the principal, also those of clients, the links to its sessions, and its subscriptions to events.
    """
    _delete_revocation(connection, record.owner)
    row = {**asdict(record), "keeps_sessions": int(record.keeps_sessions)}
    connection.execute(insert(schema.revocation), {"digest": owner_digest(record.owner), **row})
    own = select(schema.session.c.id).where(schema.session.c.owner == record.owner)
    is_ended = or_(_c.principal == record.owner, _c.session_id.in_(own))
    connection.execute(delete(schema.credential).where(is_ended))
    connection.execute(delete(schema.oauth).where(schema.oauth.c.owner == record.owner))
    subscriptions.delete_of_owner(connection, record.owner)


def _delete_revocation(connection: Connection, owner: str) -> bool:
    this = _r.digest == owner_digest(owner)
    return bool(connection.execute(delete(schema.revocation).where(this)).rowcount)


def restore(connection: Connection, owner: str) -> bool:
    """End a revocation, and the logins that began before every node knew of it. Return False if there is none."""
    connection.execute(delete(schema.credential).where(_c.principal == owner))
    return _delete_revocation(connection, owner)


def forget(connection: Connection, owner: str) -> list[str] | None:
    """Delete the sessions, the logins and the data key of a principal, with which copies of its sealed data end.

    Return the ids of the sessions; None, and change nothing, if a process has one of them.
    """
    # No session may be created meanwhile: it would be sealed with the key.
    wait_for_exclusive(connection, schema.version)
    own = select(_s.id, _s.node).where(_s.owner == owner).with_for_update()
    sessions = connection.execute(own).all()
    if any(node is not None for _, node in sessions):
        return None
    ids = [session_id for session_id, _ in sessions]
    for column in (*(table.c.session_id for table in schema.OF_A_SESSION), _s.id):
        connection.execute(delete(column.table).where(among(column)), {"ids": pack_ids(ids)})
    for session_id in ids:
        subscriptions.delete_of_session(connection, session_id)
    subscriptions.delete_of_owner(connection, owner)
    target = PolicyTarget.principal(Principal.of_key(owner))
    for table, condition in (
        (schema.login, schema.login.c.owner == owner),
        (schema.principal, _p.digest == target.digest),
        (schema.data_key, schema.data_key.c.digest == owner_digest(owner)),
    ):
        connection.execute(delete(table).where(condition))
    return ids


def revocations(connection: Connection) -> list[RevocationRecord]:
    """Return all revocations, also those that have ended by themselves, the oldest first."""
    return [_revocation(dict(columns_of(row))) for row in connection.execute(_REVOCATIONS)]


def _revocation(row: Row) -> RevocationRecord:
    row["keeps_sessions"] = bool(row["keeps_sessions"])
    return RevocationRecord(**row)
