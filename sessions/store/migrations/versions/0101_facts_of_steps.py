"""Facts of steps in the entries of calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that commits each statement may have the column from an upgrade that broke off.
    columns = sa.inspect(op.get_bind()).get_columns("journal")
    if "facts" not in {column["name"] for column in columns}:
        op.add_column("journal", sa.Column("facts", sa.Text, nullable=True))


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
