"""Codes, links and logins of the console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0103"
down_revision = "0102"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the table from an upgrade that broke off.
    if sa.inspect(op.get_bind()).has_table("credential"):
        return
    op.create_table(
        "credential",
        sa.Column("digest", sa.String(128), primary_key=True, nullable=False),
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(128), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("principal", sa.Text, nullable=True),
        sa.Column("rights", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=True),
        sa.Column("link", sa.Text, nullable=True),
        sa.Column("created_by", sa.Text, nullable=True),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("used_at", sa.Double, nullable=True),
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
