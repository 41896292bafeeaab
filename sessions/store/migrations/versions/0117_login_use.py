"""A login knows the session that has it, and when it was used and checked last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0117"
down_revision = "0116"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # MariaDB keeps the part of a migration that broke off.
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("login")}
    columns = (
        sa.Column("session", sa.String(128), nullable=False, server_default=""),
        sa.Column("used_at", sa.Double, nullable=True),
        sa.Column("checked_at", sa.Double, nullable=True),
    )
    for column in columns:
        if column.name not in present:
            op.add_column("login", column)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
