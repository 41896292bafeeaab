"""Labels of sessions: the user, agent, team and workflow they are for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_LABELS = ("user_id", "agent_id", "team_id", "workflow_id")


def upgrade() -> None:
    for label in _LABELS:
        op.add_column("session", sa.Column(label, sa.String(128), nullable=True))
    for label in _LABELS:
        condition = sa.text(f"{label} IS NOT NULL")
        op.create_index(
            f"session_{label}",
            "session",
            ["owner", label, "used_at"],
            sqlite_where=condition,
            postgresql_where=condition,
        )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
