"""Owners without the client: a principal is an issuer and a subject, so all clients of a user share its sessions.

Where two clients of a user each have an open session of one name, the session that was used last keeps the name.
"""

from __future__ import annotations

import re

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_WITH_CLIENT = re.compile(r"(\d+)\.([1-9]\d*):")
_OPEN = "status NOT IN ('closing', 'closed')"


def upgrade() -> None:
    connection = op.get_bind()
    owners = connection.execute(sa.text("SELECT DISTINCT owner FROM session")).scalars().all()
    new_owners = {owner: new for owner in owners if (new := _without_client(owner)) != owner}
    for new in sorted(set(new_owners.values())):
        _drop_names(connection, [new, *(old for old, other in new_owners.items() if other == new)])
    for old, new in new_owners.items():
        connection.execute(
            sa.text("UPDATE session SET owner = :new WHERE owner = :old"), {"new": new, "old": old}
        )


def _without_client(owner: str) -> str:
    match = _WITH_CLIENT.match(owner)
    if match is None:
        return owner
    issuer_length, client_length = map(int, match.groups())
    rest = owner[match.end() :]
    issuer, subject = rest[:issuer_length], rest[issuer_length + client_length :]
    return f"{issuer_length}.0:{issuer}{subject}" if issuer else f":{subject}"


def _drop_names(connection: sa.Connection, owners: list[str]) -> None:
    """Leave each name to one open session of these owners, which become one."""
    statement = sa.text(
        f"SELECT id, namespace, name FROM session WHERE owner IN :owners AND {_OPEN} AND name IS NOT NULL "
        "ORDER BY used_at DESC, id"
    ).bindparams(sa.bindparam("owners", expanding=True))
    names = set[tuple[str, str]]()
    for row in connection.execute(statement, {"owners": owners}).all():
        if (row.namespace, row.name) in names:
            connection.execute(
                sa.text("UPDATE session SET name = NULL WHERE id = :id"), {"id": row.id}
            )
        names.add((row.namespace, row.name))


def downgrade() -> None:
    raise NotImplementedError(
        "a database goes forward only: restore a copy made before the upgrade"
    )
