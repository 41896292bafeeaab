"""Inserting new sessions, many at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, String, bindparam, func, insert, select

from ..errors import NameTaken, OperationBusy, SessionLimit
from . import schema, tool_receipts
from .dialect import among, pack_ids, wait_for_exclusive
from .events import outbox
from .events.records import LIMIT_SHARE
from .rows import Row
from .sealing.keyring import name_forms, open_row, seal_rows

_s = schema.session.c


@dataclass(slots=True)
class NewSession:
    """A new session as rows."""

    session: Row
    state: Row
    bindings: Sequence[Row]
    per_owner: int
    receipt: Row | None = None
    limit_name: str = "limits.sessions_per_principal"


@dataclass(slots=True)
class _Owner:
    """Open sessions of an owner, including those that this batch adds."""

    count: int
    names: set[tuple[str, str]]
    before: int
    """The open sessions before the batch."""

    def comes_near(self, limit: int) -> bool:
        """Return whether the batch makes the number of sessions come near a limit; 0 is none."""
        return self.before < math.ceil(limit * LIMIT_SHARE) <= self.count


def create(connection: Connection, works: Sequence[NewSession]) -> list[Exception | None]:
    """Insert the sessions that may be created. Return for each the error that refused it, or None."""
    wait_for_exclusive(
        connection, schema.version
    )  # no other process may create between counting and inserting
    owners = _owners(connection, works)
    refusals = [
        _refuse_repeat(connection, work) or _admit(owners[work.session["owner"]], work)
        for work in works
    ]
    new = [work for work, error in zip(works, refusals, strict=True) if error is None]
    for table, rows in (
        (schema.session, [work.session for work in new]),
        (schema.state, [work.state for work in new]),
        (schema.binding, [row for work in new for row in work.bindings]),
        (schema.receipt, [work.receipt for work in new if work.receipt is not None]),
    ):
        if rows:
            connection.execute(insert(table), seal_rows(connection, table, rows))
    for work in new:
        owner = work.session["owner"]
        if owners[owner].comes_near(work.per_owner):
            outbox.add_limit(connection, owner, "sessions", work.session["created_at"])
    return refusals


def _refuse_repeat(connection: Connection, work: NewSession) -> Exception | None:
    if work.receipt is None:
        return None
    owner: str = work.session["owner"]
    receipt = tool_receipts.creation_receipt(connection, owner, work.receipt["operation_id"])
    return None if receipt is None else OperationBusy(session_id=receipt.session_id)


def _admit(owner: _Owner, work: NewSession) -> Exception | None:
    name = work.session["name"]
    key = (work.session["namespace"], name)
    if name is not None and key in owner.names:
        return name_taken(name)
    if work.per_owner and owner.count >= work.per_owner:
        return SessionLimit(
            f"There are {owner.count} open sessions already, the most allowed ({work.limit_name}).",
            recovery="Close or delete sessions that you no longer need; pausing them does not help. The operator can delete "
            "those that nobody uses: statehold sessions purge --unused-for 30d.",
        )
    owner.count += 1
    if name is not None:
        owner.names.add(key)
    return None


_COUNT = select(func.count()).where(_s.owner == bindparam("owner", type_=String()), schema.IS_OPEN)
_NAMES = select(_s.namespace, _s.name).where(
    _s.owner == bindparam("owner", type_=String()), schema.IS_OPEN, among(_s.name, "names")
)


def _owners(connection: Connection, works: Sequence[NewSession]) -> dict[str, _Owner]:
    owners: dict[str, _Owner] = {}
    for work in works:
        owner = work.session["owner"]
        if owner in owners:
            continue
        mine = [other for other in works if other.session["owner"] == owner]
        names = [
            form
            for other in mine
            if other.session["name"] is not None
            for form in name_forms(connection, owner, other.session["name"])
        ]
        count, names_in_use = 0, set[tuple[str, str]]()
        if any(other.per_owner for other in mine):
            count = connection.scalar(_COUNT, {"owner": owner}) or 0
        if names:
            rows = connection.execute(_NAMES, {"owner": owner, "names": pack_ids(names)})
            opened = [open_row(connection, row, schema.session) for row in rows]
            names_in_use = {(row["namespace"], row["name"]) for row in opened}
        owners[owner] = _Owner(count, names_in_use, count)
    return owners


def name_taken(name: str | None) -> NameTaken:
    """Return the error of a creation or a change whose name another open session of the owner has."""
    return NameTaken(f"There is an open session named {name!r} already.")
