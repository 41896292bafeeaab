"""The logins at services."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Double, LargeBinary, String, Text

revision = "0116"
down_revision = "0115"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "login",
        Column("id", String(128), primary_key=True, nullable=False),
        Column("owner", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("site", Text, nullable=False),
        Column("issuer", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("since", Double, nullable=False),
        Column("sealed", LargeBinary, nullable=False),
        Column("reason", Text, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("expires_at", Double, nullable=True),
        Column("lease_ends_at", Double, nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
