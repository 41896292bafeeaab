"""The rows of the audit log. Each function runs in a transaction of the writer, or reads with single statements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from ..audit.entry import AuditHead, AuditRow, chain_hash
from . import schema

_a = schema.audit.c
_h = schema.audit_head.c

_HEAD = select(_h.seq, _h.hash)
# The lock makes the writers of all processes append one after the other.
_LOCKED_HEAD = _HEAD.with_for_update()


def append(connection: Connection, document: str) -> AuditHead:
    """Append an entry and return the end of the log."""
    last = _lock_head(connection)
    seq = last.seq + 1
    new = AuditHead(seq, chain_hash(seq, document, last.hash))
    row = {"seq": seq, "document": document, "hash": new.hash}
    connection.execute(insert(schema.audit), row)
    connection.execute(update(schema.audit_head).values(seq=seq, hash=new.hash))
    return new


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
    """Return the end of the log as it is kept beside its entries."""
    row = connection.execute(_HEAD).first()
    return AuditHead() if row is None else AuditHead(*row)


def page(connection: Connection, after: int, limit: int) -> Sequence[AuditRow]:
    """Return the next entries after a position, oldest first."""
    statement = (
        select(_a.seq, _a.document, _a.hash).where(_a.seq > after).order_by(_a.seq).limit(limit)
    )
    return [AuditRow(*row) for row in connection.execute(statement)]
