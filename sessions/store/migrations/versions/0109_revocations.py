"""Revoked principals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0109"
down_revision = "0108"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the table from an upgrade that broke off.
    if "revocation" in sa.inspect(op.get_bind()).get_table_names():
        return
    op.create_table(
        "revocation",
        sa.Column("digest", sa.String(128), primary_key=True, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("revoked_at", sa.Double, nullable=False),
        sa.Column("revoked_by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=True),
        sa.Column("until", sa.Double, nullable=True),
        sa.Column("keeps_sessions", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
