"""The control lease of a session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0102"
down_revision = "0101"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the column from an upgrade that broke off.
    columns = sa.inspect(op.get_bind()).get_columns("session")
    if "control" not in {column["name"] for column in columns}:
        op.add_column("session", sa.Column("control", sa.Text, nullable=True))


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
