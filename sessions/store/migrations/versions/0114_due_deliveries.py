"""The due deliveries of a subscription are found by an index."""

from __future__ import annotations

from alembic import op

revision = "0114"
down_revision = "0113"
branch_labels = None
depends_on = None


def upgrade() -> None:
    columns = ["subscription_id", "due_at"]
    op.create_index("delivery_turn", "delivery", columns, if_not_exists=True)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
