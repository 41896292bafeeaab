"""The subscriptions to events of sessions, and the deliveries that wait."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Double, String, Text

revision = "0112"
down_revision = "0111"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "subscription",
        Column("id", String(128), primary_key=True, nullable=False),
        Column("owner", Text, nullable=False),
        Column("session_id", String(128), nullable=False),
        Column("name", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("host", String(255), nullable=False),
        Column("secret", Text, nullable=False),
        Column("old_secret", Text, nullable=True),
        Column("old_secret_ends_at", Double, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("expires_at", Double, nullable=False),
        if_not_exists=True,
    )
    columns = ["session_id", "owner"]
    op.create_index("subscription_session", "subscription", columns, if_not_exists=True)
    op.create_table(
        "delivery",
        Column("subscription_id", String(128), primary_key=True, nullable=False),
        Column("event_id", String(255), primary_key=True, nullable=False),
        Column("host", String(255), nullable=False),
        Column("body", Text, nullable=False),
        Column("attempts", BigInteger, nullable=False),
        Column("due_at", Double, nullable=True),
        if_not_exists=True,
    )
    op.create_index("delivery_due", "delivery", ["host", "due_at"], if_not_exists=True)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
