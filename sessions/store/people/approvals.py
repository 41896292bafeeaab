"""Approvals of calls by people: each for one exact call, used once. The functions that write run in a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, case, func, insert, or_, select, update

from .. import schema
from ..base import ApprovalRecord, ApprovalState
from ..events import outbox
from ..rows import columns_of
from ..sealing.keyring import open_row, seal_rows

MOST_REQUESTS: Final = 20
"""Requests of one session that wait at once."""
PAGE_ROWS: Final = 100
PENDING, APPROVED, REFUSED, USED, STANDING = (state.value for state in ApprovalState)
_a = schema.approval.c
_COLUMNS: Final = [_a[each.name] for each in fields(ApprovalRecord)]


def request(connection: Connection, record: ApprovalRecord) -> ApprovalRecord | None:
    """Return what the same call has: an approval that holds, a refusal, or a request. Else store the request.

    Return None if MOST_REQUESTS of the session wait.
    """
    now = record.created_at
    exact = and_(_a.digest == record.digest, _a.state.in_((PENDING, APPROVED, REFUSED)))
    same = or_(exact, _covers(record.standing))
    query = select(*_COLUMNS).where(_a.standing == record.standing, same, _a.ends_at > now)
    # One that is approved, or covers the call, goes before others.
    found = [
        ApprovalRecord(**open_row(connection, row, schema.approval))
        for row in connection.execute(query)
    ]
    if found:
        return min(found, key=lambda each: each.state in (PENDING, REFUSED))
    waits = (_a.session_id == record.session_id, _a.state == PENDING, _a.ends_at > now)
    if (connection.scalar(select(func.count()).where(*waits)) or 0) >= MOST_REQUESTS:
        return None
    row = asdict(record)
    connection.execute(insert(schema.approval), seal_rows(connection, schema.approval, [row]))
    outbox.add(connection, (), approvals=[row])
    return record


def use(connection: Connection, approval_id: str, digest: str, standing: str, now: float) -> bool:
    """Use up the approval of a call. Return False if it is none of this call, was used, or has ended.

    A standing one, of what `standing` is the digest of, is not used up.
    """
    holds = (_a.id == approval_id, _a.ends_at > now)
    approved = update(schema.approval).where(*holds, _a.digest == digest, _a.state == APPROVED)
    if connection.execute(approved.values(state=USED)).rowcount:
        return True
    covers = select(_a.id).where(*holds, _covers(standing))
    return connection.execute(covers).first() is not None


def _covers(standing: str) -> ColumnElement[bool]:
    return and_(_a.standing == standing, _a.state == STANDING)


def decide(
    connection: Connection, approval_id: str, state: ApprovalState, now: float, ends_at: float
) -> bool:
    """Approve or refuse a request that waits; refusing also ends an approval. Return False if there is none of these."""
    before = [PENDING] if state is not ApprovalState.REFUSED else [PENDING, APPROVED, STANDING]
    waits = (_a.id == approval_id, _a.state.in_(before), _a.ends_at > now)
    # The end of a standing approval refuses no call.
    after = case((_a.state == STANDING, USED), else_=state.value)
    values = {"state": after, "arguments": "", "ends_at": ends_at}
    return connection.execute(update(schema.approval).where(*waits).values(values)).rowcount == 1


def find(connection: Connection, approval_id: str) -> ApprovalRecord | None:
    row = connection.execute(select(*_COLUMNS).where(_a.id == approval_id)).first()
    return None if row is None else ApprovalRecord(**open_row(connection, row, schema.approval))


def page(connection: Connection, owner: str | None, now: float) -> Sequence[ApprovalRecord]:
    """Return requests that wait, then standing approvals, of an owner or all, the newest first, without arguments."""
    columns = [each for each in _COLUMNS if each is not _a.arguments]
    query = select(*columns).where(_a.state.in_((PENDING, STANDING)), _a.ends_at > now)
    if owner is not None:
        query = query.where(_a.owner == owner)
    newest = query.order_by(_a.state, _a.created_at.desc()).limit(PAGE_ROWS)
    return [ApprovalRecord(**columns_of(row), arguments="") for row in connection.execute(newest)]
