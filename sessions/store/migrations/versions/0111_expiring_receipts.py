"""Receipts of calls whose ids are ours expire; a receipt may name the task of an upstream."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0111"
down_revision = "0110"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # MariaDB keeps the part of a migration that broke off.
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("receipt")}
    if "upstream" not in present:
        op.add_column("receipt", sa.Column("upstream", sa.Text, nullable=True))
    if "expires_at" not in present:
        op.add_column("receipt", sa.Column("expires_at", sa.Double, nullable=True))
    kept = sa.text("expires_at IS NOT NULL")
    op.create_index(
        "receipt_expiry",
        "receipt",
        ["expires_at"],
        if_not_exists=True,
        sqlite_where=kept,
        postgresql_where=kept,
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
