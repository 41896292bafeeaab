"""Receipts of calls to our own tools, which do not depend on the owner of the session.

Each function runs in a transaction of the writer. An existing receipt refuses a claim, and only the call that began a
receipt ends it, so neither needs the fence of a session.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, String, bindparam, delete, insert, select, update

from ..errors import SessionNotFound
from ..journal.entries import STARTED
from ..records import ReceiptRecord
from . import journal_queries, schema
from .rows import receipt_record, receipt_row
from .sealing.keyring import open_row, seal_rows

_r = schema.receipt.c
_s = schema.session.c

_LOCK = select(_s.id).where(_s.id == bindparam("session_id", type_=String())).with_for_update()
_CREATED = (
    select(schema.receipt)
    .join(schema.session, _s.id == _r.session_id)
    .where(
        _s.owner == bindparam("owner", type_=String()),
        _r.operation_id == bindparam("operation_id", type_=String()),
    )
    .limit(1)
)
_ENDS = ("status", "ended_at", "bytes", "result", "error")


def start(connection: Connection, receipt: ReceiptRecord) -> ReceiptRecord | None:
    """Insert the receipt of a starting call. Not fenced: the first call claims the id.

    Returns the receipt that the session already has for this id; then nothing was written.

    Raises:
        SessionNotFound: when there is no such session.
    """
    # The lock on its row keeps others from deleting the session, or claiming the same id, at the same time.
    if connection.scalar(_LOCK, {"session_id": receipt.session_id}) is None:
        raise SessionNotFound
    existing = journal_queries.receipt(connection, receipt.session_id, receipt.operation_id)
    if existing is None:
        row = seal_rows(connection, schema.receipt, [receipt_row(receipt)])
        connection.execute(insert(schema.receipt), row)
    return existing


def end(connection: Connection, receipt: ReceiptRecord, *, forget: bool = False) -> None:
    """End a receipt that start() or a creating call began, or delete it. Not fenced.

    A receipt that has ended, or is gone with its session, stays so.
    """
    this = (
        _r.session_id == receipt.session_id,
        _r.operation_id == receipt.operation_id,
        _r.digest == receipt.digest,
        _r.status == STARTED,
    )
    if forget:
        connection.execute(delete(schema.receipt).where(*this))
    else:
        [row] = seal_rows(connection, schema.receipt, [receipt_row(receipt)])
        values: dict[str, Any] = {key: row[key] for key in _ENDS}
        connection.execute(update(schema.receipt).where(*this).values(values))


def creation_receipt(connection: Connection, owner: str, operation_id: str) -> ReceiptRecord | None:
    """Return the receipt of the call with a creation_id() that created a session of an owner."""
    parameters = {"owner": owner, "operation_id": operation_id}
    row = connection.execute(_CREATED, parameters).first()
    return None if row is None else receipt_record(open_row(connection, row, schema.receipt))
