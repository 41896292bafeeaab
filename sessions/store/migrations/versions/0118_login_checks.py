"""A login knows that it is being checked, and when a command renewed it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0118"
down_revision = "0117"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # MariaDB keeps the part of a migration that broke off.
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("login")}
    columns = (
        sa.Column("in_check", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("renewals", sa.String(64), nullable=False, server_default=""),
    )
    for column in columns:
        if column.name not in present:
            op.add_column("login", column)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
