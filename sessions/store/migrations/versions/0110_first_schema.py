"""The first schema that is read for ever, and the beginning of the line of migrations.

An empty database gets the tables of the program without a migration; see `upgrade.py`. So this one has nothing to do.
"""

from __future__ import annotations

revision = "0110"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
