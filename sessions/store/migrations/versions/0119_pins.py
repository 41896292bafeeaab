"""The definitions of what services offer, as they were first seen or accepted last."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double, String, Text

revision = "0119"
down_revision = "0118"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pin",
        Column("id", String(128), primary_key=True, nullable=False),
        Column("service", String(128), nullable=False),
        Column("config_hash", String(128), nullable=False),
        Column("kind", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("digest", Text, nullable=False),
        Column("definition", Text, nullable=False),
        Column("since", Double, nullable=False),
        Column("offered_digest", Text, nullable=False),
        Column("offered", Text, nullable=False),
        Column("offered_at", Double, nullable=True),
        if_not_exists=True,
    )
    op.create_index("pin_service", "pin", ["service"], if_not_exists=True)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
