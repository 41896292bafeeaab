"""The audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0104"
down_revision = "0103"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the tables from an upgrade that broke off.
    existing = sa.inspect(op.get_bind()).get_table_names()
    if "audit" not in existing:
        op.create_table(
            "audit",
            sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False, nullable=False),
            sa.Column("document", sa.Text, nullable=False),
            sa.Column("hash", sa.Text, nullable=False),
        )
    if "audit_head" not in existing:
        op.create_table(
            "audit_head",
            sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False, nullable=False),
            sa.Column("seq", sa.BigInteger, nullable=False),
            sa.Column("hash", sa.Text, nullable=False),
        )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
