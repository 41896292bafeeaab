"""The approvals of calls by people."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double, String, Text

revision = "0120"
down_revision = "0119"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "approval",
        Column("id", String(128), primary_key=True, nullable=False),
        Column("owner", Text, nullable=False),
        Column("session_id", String(128), nullable=False),
        Column("service", Text, nullable=False),
        Column("tool", Text, nullable=False),
        Column("digest", String(128), nullable=False),
        Column("standing", String(128), nullable=False),
        Column("arguments", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("ends_at", Double, nullable=False),
        if_not_exists=True,
    )
    op.create_index("approval_standing", "approval", ["standing"], if_not_exists=True)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
