"""Nodes on several machines: their address, their load, and the length of their lease."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name, kind, default in (
        ("peer", sa.String(255), "''"),
        ("sessions", sa.BigInteger, "0"),
        ("capacity", sa.BigInteger, "0"),
        ("version", sa.String(64), "''"),
        ("lease_seconds", sa.Double, "0"),
    ):
        column = sa.Column(name, kind, nullable=False, server_default=sa.text(default))
        op.add_column("node", column)


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
