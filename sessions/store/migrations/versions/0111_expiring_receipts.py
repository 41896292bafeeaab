"""Receipts of calls whose ids are ours expire; a receipt may name the task of an upstream."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0111"
down_revision = "0110"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("receipt", sa.Column("upstream", sa.Text, nullable=True))
    op.add_column("receipt", sa.Column("expires_at", sa.Double, nullable=True))
    kept = sa.text("expires_at IS NOT NULL")
    op.create_index(
        "receipt_expiry", "receipt", ["expires_at"], sqlite_where=kept, postgresql_where=kept
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
