"""The rows of the audit log. Each function runs in a transaction of the writer, or reads with single statements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from ...principals.audit_log import AuditHead, AuditRow, chain_hash
from .. import schema
from ..dialect import execute_many
from ..sealing.keyring import OPERATOR, open_row, seal_rows

_a = schema.audit.c
_h = schema.audit_head.c

_INSERT = insert(schema.audit)
_HEAD = select(_h.seq, _h.hash)
# The lock makes the writers of all processes append one after the other.
_LOCKED_HEAD = _HEAD.with_for_update()


@dataclass(frozen=True, slots=True)
class AuditAppend:
    """A unit of the writer that appends one entry."""

    document: str


def append(connection: Connection, entries: Sequence[AuditAppend]) -> None:
    """Append entries; none of them can be refused alone."""
    if not entries:
        return
    last = _lock_head(connection)
    seq, previous = last.seq, last.hash
    rows: list[dict[str, object]] = []
    for entry in entries:
        seq, previous = seq + 1, chain_hash(seq + 1, entry.document, previous)
        rows.append({"seq": seq, "document": entry.document, "hash": previous})
    # The log outlives principals, so it is of the operator.
    sealed_rows = seal_rows(connection, schema.audit, rows, owner=OPERATOR)
    execute_many(connection, _INSERT, sealed_rows)
    connection.execute(update(schema.audit_head).values(seq=seq, hash=previous))


def _lock_head(connection: Connection) -> AuditHead:
    row = connection.execute(_LOCKED_HEAD).first()
    if row is None:
        # Another process may begin the log at the same moment.
        with suppress(IntegrityError), connection.begin_nested():
            first = AuditHead()
            values = {"id": 1, "seq": first.seq, "hash": first.hash}
            connection.execute(insert(schema.audit_head), values)
        row = connection.execute(_LOCKED_HEAD).one()
    return AuditHead(*row)


def head(connection: Connection) -> AuditHead:
    """Return the end of the audit log, as it is kept beside the entries."""
    row = connection.execute(_HEAD).first()
    return AuditHead() if row is None else AuditHead(*row)


def page(connection: Connection, after: int, limit: int) -> Sequence[AuditRow]:
    """Return the next entries of the audit log after a position, oldest first."""
    statement = (
        select(_a.seq, _a.document, _a.hash).where(_a.seq > after).order_by(_a.seq).limit(limit)
    )
    rows = connection.execute(statement)
    return [AuditRow(**open_row(connection, row, schema.audit)) for row in rows]
