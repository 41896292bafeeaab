"""Indexes for lists of sessions by one status and by the beginning of a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0122"
down_revision = "0121"
branch_labels = None
depends_on = None


def upgrade() -> None:
    named = sa.text("name IS NOT NULL")
    op.create_index(
        "session_named",
        "session",
        ["owner", "name"],
        if_not_exists=True,
        sqlite_where=named,
        postgresql_where=named,
    )
    op.create_index("session_status", "session", ["owner", "status", "used_at"], if_not_exists=True)
    op.drop_index("session_open", "session", if_exists=True)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
