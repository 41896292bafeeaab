"""The data keys of sealed content, and labels of any length, as sealed ones are longer."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, LargeBinary, String, Text

revision = "0121"
down_revision = "0120"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "data_key",
        Column("digest", String(128), primary_key=True, nullable=False),
        Column("id", String(128), nullable=False),
        Column("wrapped", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_index("data_key_id", "data_key", ["id"], if_not_exists=True)
    if op.get_bind().dialect.name == "postgresql":
        for label in ("user_id", "agent_id", "team_id", "workflow_id"):
            op.alter_column("session", label, type_=Text())


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
