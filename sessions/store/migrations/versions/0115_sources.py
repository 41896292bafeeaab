"""A subscription may be to an event of a service, which is polled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0115"
down_revision = "0114"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # MariaDB keeps the part of a migration that broke off.
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("subscription")}
    if "source" not in present:
        op.add_column("subscription", sa.Column("source", sa.Text, nullable=True))


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
