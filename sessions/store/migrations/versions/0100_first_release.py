"""The schema of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None

_LABELS = ("user_id", "agent_id", "team_id", "workflow_id")
_OPEN = "status NOT IN ('closing', 'closed')"


def _name(key: str, *, primary: bool = False) -> sa.Column[str]:
    return sa.Column(key, sa.String(128), primary_key=primary, nullable=False)


def _text(key: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(key, sa.Text, nullable=null)


def _integer(key: str, *, primary: bool = False) -> sa.Column[int]:
    return sa.Column(key, sa.BigInteger, primary_key=primary, autoincrement=False, nullable=False)


def _time(key: str, *, null: bool = False) -> sa.Column[float]:
    return sa.Column(key, sa.Double, nullable=null)


def upgrade() -> None:
    op.create_table(
        "node",
        _name("id", primary=True),
        _text("proof_key"),
        _text("address"),
        _text("state"),
        _time("started_at"),
        _integer("pid"),
        _integer("beat"),
        _time("lease_ends_at", null=True),
        sa.Column("peer", sa.String(255), nullable=False, server_default=sa.text("''")),
        sa.Column("sessions", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("capacity", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("version", sa.String(64), nullable=False, server_default=sa.text("''")),
        sa.Column("lease_seconds", sa.Double, nullable=False, server_default=sa.text("0")),
    )
    op.create_table(
        "session",
        _name("id", primary=True),
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
        *(sa.Column(label, sa.String(128), nullable=True) for label in _LABELS),
    )
    op.create_table(
        "binding",
        _name("session_id", primary=True),
        _name("service", primary=True),
        _text("status"),
        _integer("generation"),
        _integer("told_generation"),
        _text("config_hash"),
        _text("last_error", null=True),
        _time("since"),
        _text("resume_token", null=True),
    )
    op.create_table(
        "state",
        _name("session_id", primary=True),
        _integer("version"),
        _text("value"),
        _text("json_schema", null=True),
    )
    op.create_table(
        "journal",
        _name("session_id", primary=True),
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
        sa.Column("bytes", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    )
    op.create_table(
        "tally",
        _name("session_id", primary=True),
        _integer("entries"),
        _integer("bytes"),
    )
    op.create_table(
        "receipt",
        _name("session_id", primary=True),
        _name("operation_id", primary=True),
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
        _name("session_id", primary=True),
        _text("text"),
        _text("topics"),
        _time("updated_at"),
        _integer("through_seq"),
    )
    op.create_table(
        "snapshot",
        _name("session_id", primary=True),
        _name("service", primary=True),
        _integer("seq", primary=True),
        _time("taken_at"),
        _integer("epoch"),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    _index("session_name", "session", ["owner", "namespace", "name"], where=_OPEN, unique=True)
    _index("session_open", "session", ["owner"], where=_OPEN)
    _index("session_used", "session", ["owner", "used_at"])
    _index("session_due", "session", ["due_at"], where="node IS NULL")
    _index("session_node", "session", ["node"], where="node IS NOT NULL")
    for label in _LABELS:
        columns = ["owner", label, "used_at"]
        _index(f"session_{label}", "session", columns, where=f"{label} IS NOT NULL")
    columns = ["session_id", "seq", "kind", "tool", "status", "run", "role"]
    _index("journal_look", "journal", columns)
    _index("journal_started", "journal", ["session_id"], where="status = 'started'")


def _index(
    name: str, table: str, columns: list[str], *, where: str | None = None, unique: bool = False
) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
