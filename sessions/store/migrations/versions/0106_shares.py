"""Shares of sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0106"
down_revision = "0104"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the table from an upgrade that broke off.
    inspector = sa.inspect(op.get_bind())
    if "session_share" not in inspector.get_table_names():
        op.create_table(
            "session_share",
            sa.Column("session_id", sa.String(128), primary_key=True, nullable=False),
            sa.Column("grantee", sa.String(128), primary_key=True, nullable=False),
            sa.Column("kind", sa.Text, nullable=False),
            sa.Column("issuer", sa.Text, nullable=False),
            sa.Column("name", sa.Text, nullable=False),
            sa.Column("rights", sa.Text, nullable=False),
            sa.Column("created_by", sa.Text, nullable=False),
            sa.Column("created_at", sa.Double, nullable=False),
            sa.Column("expires_at", sa.Double, nullable=False),
        )
    indexes = sa.inspect(op.get_bind()).get_indexes("session_share")
    if "session_share_grantee" not in {index["name"] for index in indexes}:
        op.create_index("session_share_grantee", "session_share", ["grantee"])


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
