"""Logins of the authorization server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0107"
down_revision = "0106"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the table from an upgrade that broke off.
    if sa.inspect(op.get_bind()).has_table("oauth"):
        return
    op.create_table(
        "oauth",
        sa.Column("digest", sa.String(128), primary_key=True, nullable=False),
        sa.Column("secret", sa.String(128), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
