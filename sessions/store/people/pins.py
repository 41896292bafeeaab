"""Pins: the definition of each tool, prompt, template and page of a service, as it was first seen or accepted last.

They belong to one configuration of the service, by its hash. The functions that write run in a transaction of the writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from .. import schema
from ..base import PinRecord
from ..events import outbox
from ..rows import columns_of

_p = schema.pin.c
_COLUMNS: Final = [_p[each.name] for each in fields(PinRecord)]
_OFFERED: Final = ("offered_digest", "offered", "offered_at")
NAMED: Final = 5
"""The most names in one notice."""


def digests(
    connection: Connection, service: str, config_hash: str, kind: str
) -> Mapping[str, tuple[str, str]]:
    """Return the digest of each pinned definition of a kind, and of the one that is offered in its place, by name."""
    query = select(_p.name, _p.digest, _p.offered_digest).where(
        _p.service == service, _p.config_hash == config_hash, _p.kind == kind
    )
    return {name: (digest, offered) for name, digest, offered in connection.execute(query)}


def fix(connection: Connection, records: Sequence[PinRecord]) -> Mapping[str, str]:
    """Pin definitions of one kind that were not seen before, and note which are offered in place of pinned ones.

    A record whose definition is the pinned one ends what was offered in its place. A definition that another process pins
    at the same time stays. Return the digest of each that is pinned now, by name.
    """
    ids = [record.id for record in records]
    known = _digests_of(connection, ids)
    for record in records:
        if record.id not in known:
            with suppress(IntegrityError), connection.begin_nested():
                connection.execute(insert(schema.pin), {**asdict(record), "id": record.id})
    known = _digests_of(connection, ids)
    others = [record for record in records if record.id in known]
    if others:
        offered: dict[str, Any] = {name: bindparam(f"new_{name}") for name in _OFFERED}
        statement = update(schema.pin).where(_p.id == bindparam("this")).values(offered)
        offers = [_offer(record, known[record.id][0]) for record in others]
        connection.execute(statement, offers)
        _add_notice(connection, [each for each in others if each.digest not in known[each.id]])
    return {record.name: known[record.id][0] for record in others}


def _digests_of(connection: Connection, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    rows = connection.execute(select(_p.id, _p.digest, _p.offered_digest).where(_p.id.in_(ids)))
    return {row.id: (row.digest, row.offered_digest) for row in rows}


def _add_notice(connection: Connection, changed: Sequence[PinRecord]) -> None:
    if not changed:
        return
    first, names = changed[0], [record.name for record in changed]
    key = [[record.id, record.digest] for record in changed]
    data = {
        "service": first.service,
        "config": first.config_hash,
        "count": len(names),
        "names": names[:NAMED],
    }
    outbox.add_notice(connection, "tool_changed", key, first.since, **data)


def _offer(record: PinRecord, pinned: str) -> Mapping[str, object]:
    is_same = pinned == record.digest
    return {
        "this": record.id,
        "new_offered_digest": "" if is_same else record.digest,
        "new_offered": "" if is_same else record.definition,
        "new_offered_at": None if is_same else record.since,
    }


def changes(connection: Connection, service: str, config_hash: str) -> list[PinRecord]:
    """Return the pins of a service in whose place another definition is offered, by kind and name."""
    this = (_p.service == service, _p.config_hash == config_hash, _p.offered_digest != "")
    rows = connection.execute(select(*_COLUMNS).where(*this).order_by(_p.kind, _p.name))
    return [PinRecord(**columns_of(row)) for row in rows]


def count_changes(connection: Connection) -> Mapping[tuple[str, str], int]:
    """Return the number of changes of each service that has some, by its name and the hash of its configuration."""
    query = select(_p.service, _p.config_hash, func.count()).where(_p.offered_digest != "")
    rows = connection.execute(query.group_by(_p.service, _p.config_hash))
    return {(service, config_hash): count for service, config_hash, count in rows}


def accept(connection: Connection, record: PinRecord, now: float) -> bool:
    """Pin the definition that is offered in place of another. Return False if a third one is offered by now."""
    values = {
        "digest": record.offered_digest,
        "definition": record.offered,
        "since": now,
        "offered_digest": "",
        "offered": "",
        "offered_at": None,
    }
    same = (_p.id == record.id, _p.offered_digest == record.offered_digest)
    return connection.execute(update(schema.pin).where(*same).values(values)).rowcount == 1
