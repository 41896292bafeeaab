"""The calls that go on are found by an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0113"
down_revision = "0112"
branch_labels = None
depends_on = None


def upgrade() -> None:
    started = sa.text("status = 'started'")
    op.create_index(
        "receipt_started",
        "receipt",
        ["session_id"],
        if_not_exists=True,
        sqlite_where=started,
        postgresql_where=started,
    )


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
