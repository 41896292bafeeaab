"""The role and the groups of a login at the console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0110"
down_revision = "0109"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the column from an upgrade that broke off.
    columns = sa.inspect(op.get_bind()).get_columns("credential")
    if "claims" not in {column["name"] for column in columns}:
        op.add_column("credential", sa.Column("claims", sa.Text, nullable=True))


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
