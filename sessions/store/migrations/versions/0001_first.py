"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_OPEN = sa.text("status NOT IN ('closing', 'closed')")


def _name(key: str) -> sa.Column[str]:
    return sa.Column(key, sa.String(128), primary_key=True, nullable=False)


def _text(key: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(key, sa.Text, nullable=null)


def _integer(key: str, *, primary: bool = False) -> sa.Column[int]:
    return sa.Column(key, sa.BigInteger, primary_key=primary, autoincrement=False, nullable=False)


def _time(key: str, *, null: bool = False) -> sa.Column[float]:
    return sa.Column(key, sa.Double, nullable=null)


def upgrade() -> None:
    op.create_table(
        "node",
        _name("id"),
        _text("proof_key"),
        _text("address"),
        _text("state"),
        _time("started_at"),
        _integer("pid"),
        _integer("beat"),
        _time("lease_ends_at", null=True),
    )
    op.create_table(
        "session",
        _name("id"),
        _text("owner"),
        _text("namespace"),
        _text("name", null=True),
        _text("status"),
        _text("reason", null=True),
        _time("created_at"),
        _time("used_at"),
        _time("status_at"),
        _time("closed_at", null=True),
        _time("due_at", null=True),
        _time("idle_seconds"),
        _time("paused_seconds"),
        _time("lifetime_seconds"),
        _time("lifetime_ends_at", null=True),
        _text("metadata"),
        _text("parent", null=True),
        _text("node", null=True),
        _integer("epoch"),
        _text("services"),
    )
    _index("session_name", "session", ["owner", "namespace", "name"], where=_OPEN, unique=True)
    _index("session_open", "session", ["owner"], where=_OPEN)
    _index("session_used", "session", ["owner", "used_at"])
    _index("session_due", "session", ["due_at"], where=sa.text("node IS NULL"))
    _index("session_node", "session", ["node"], where=sa.text("node IS NOT NULL"))
    op.create_table(
        "binding",
        _name("session_id"),
        _name("service"),
        _text("status"),
        _integer("generation"),
        _integer("told_generation"),
        _text("config_hash"),
        _text("last_error", null=True),
        _time("since"),
    )
    op.create_table(
        "state",
        _name("session_id"),
        _integer("version"),
        _text("value"),
        _text("json_schema", null=True),
    )
    op.create_table(
        "journal",
        _name("session_id"),
        _integer("seq", primary=True),
        _text("kind"),
        _integer("epoch"),
        _text("service", null=True),
        _text("tool", null=True),
        _text("status", null=True),
        _text("run", null=True),
        _text("role", null=True),
        _text("operation_id", null=True),
        _time("started_at"),
        _time("ended_at", null=True),
        _integer("generation"),
        _text("request", null=True),
        _text("result", null=True),
        _text("error", null=True),
    )
    _index(
        "journal_operation",
        "journal",
        ["session_id", "operation_id"],
        where=sa.text("operation_id IS NOT NULL"),
        unique=True,
    )
    op.create_table(
        "snapshot",
        _name("session_id"),
        _name("service"),
        _integer("seq", primary=True),
        _time("taken_at"),
        _integer("epoch"),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def _index(
    name: str,
    table: str,
    columns: list[str],
    *,
    where: sa.TextClause | None = None,
    unique: bool = False,
) -> None:
    op.create_index(name, table, columns, unique=unique, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
