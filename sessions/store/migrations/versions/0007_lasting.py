"""Sessions last: those that have the former default times get the new ones.

Former: one day paused, seven days of life. New: 30 days without use for a session without a name, no end otherwise.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_session = sa.table(
    "session",
    sa.column("name"),
    sa.column("status"),
    sa.column("status_at"),
    sa.column("due_at"),
    sa.column("paused_seconds"),
    sa.column("lifetime_seconds"),
    sa.column("lifetime_ends_at"),
)


def upgrade() -> None:
    s = _session.c
    is_open = s.status.not_in(["closing", "closed"])
    # One column each: MariaDB assigns from left to right.
    for condition, values in (
        (is_open & (s.lifetime_seconds == 604_800), {"lifetime_ends_at": sa.null()}),
        (is_open & (s.lifetime_seconds == 604_800), {"lifetime_seconds": 0}),
        (is_open & (s.paused_seconds == 86_400) & s.name.is_(None), {"paused_seconds": 2_592_000}),
        (is_open & (s.paused_seconds == 86_400) & s.name.is_not(None), {"paused_seconds": 0}),
        (s.status == "paused", {"due_at": s.lifetime_ends_at}),
        (
            (s.status == "paused")
            & (s.paused_seconds > 0)
            & (s.due_at.is_(None) | (s.due_at > s.status_at + s.paused_seconds)),
            {"due_at": s.status_at + s.paused_seconds},
        ),
    ):
        op.execute(_session.update().where(condition).values(**values))


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
