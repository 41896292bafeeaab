"""Receipts of operations, summaries of hosts, and the size of journals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_STARTED = sa.text("status = 'started'")


def _name(key: str) -> sa.Column[str]:
    return sa.Column(key, sa.String(128), primary_key=True, nullable=False)


def _text(key: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(key, sa.Text, nullable=null)


def _integer(key: str) -> sa.Column[int]:
    return sa.Column(key, sa.BigInteger, autoincrement=False, nullable=False)


def _time(key: str, *, null: bool = False) -> sa.Column[float]:
    return sa.Column(key, sa.Double, nullable=null)


def upgrade() -> None:
    size = sa.Column("bytes", sa.BigInteger, nullable=False, server_default=sa.text("0"))
    op.add_column("journal", size)
    op.execute(
        "UPDATE journal SET bytes = 200 + coalesce(length(request), 0) + coalesce(length(result), 0)"
        " + coalesce(length(error), 0)"
    )
    op.drop_index("journal_operation", "journal")
    op.create_index(
        "journal_look",
        "journal",
        ["session_id", "seq", "kind", "tool", "status", "run", "role"],
    )
    op.create_index(
        "journal_started",
        "journal",
        ["session_id"],
        sqlite_where=_STARTED,
        postgresql_where=_STARTED,
    )
    op.create_table("tally", _name("session_id"), _integer("entries"), _integer("bytes"))
    op.execute(
        "INSERT INTO tally (session_id, entries, bytes)"
        " SELECT session_id, count(*), sum(bytes) FROM journal GROUP BY session_id"
    )
    op.create_table(
        "receipt",
        _name("session_id"),
        _name("operation_id"),
        _text("digest"),
        _text("status"),
        _integer("seq"),
        _integer("epoch"),
        _time("started_at"),
        _time("ended_at", null=True),
        _integer("bytes"),
        _text("result", null=True),
        _text("error", null=True),
    )
    op.create_table(
        "summary",
        _name("session_id"),
        _text("text"),
        _text("topics"),
        _time("updated_at"),
        _integer("through_seq"),
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
