"""Policies and memberships of principals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0108"
down_revision = "0107"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the table from an upgrade that broke off.
    if "principal" in sa.inspect(op.get_bind()).get_table_names():
        return
    op.create_table(
        "principal",
        sa.Column("digest", sa.String(128), primary_key=True, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("issuer", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("member_of", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
