"""Lists of sessions, page by page. Each function runs single statements on the connection it is given."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from sqlalchemy import Connection, Select, and_, func, or_, select

from ..errors import InvalidArgument
from ..json_codec import dumps, loads
from ..records import LABELS, SessionFilter, SessionRecord
from ..state.merge import same_json
from . import rows, schema
from .dialect import among, packed
from .rows import mapping

LOOKED: Final = 5_000
"""Most sessions read for one page if a filter has no index. The page may then be short and still have a cursor."""
CHUNK: Final = 250
PAGE_BYTES: Final = 1 << 20
"""Most bytes of metadata in a page; its first session is always returned."""

_s = schema.session.c
_LOOK = select(_s.id, _s.used_at, _s.name, _s.metadata, *(_s[label] for label in LABELS))
_SUMMARIES = select(
    schema.summary.c.session_id, schema.summary.c.text, schema.summary.c.topics
).where(among(schema.summary.c.session_id))

Position = tuple[float, str]


def page(
    connection: Connection, wanted: SessionFilter, after: Position | None
) -> tuple[list[SessionRecord], str | None]:
    """Return sessions, newest use first, and the cursor of the next page or None.

    The indexes of the owner and of the labels bound the rows that are read. Metadata and texts are compared here, value by
    value, so that a value is never mistaken for a part of another, on any database.
    """
    found: list[Any] = []
    room = PAGE_BYTES
    for looked, (row, fits) in enumerate(_candidates(connection, wanted, after)):
        room -= len(row.metadata) if fits else 0
        full = len(found) == wanted.limit or (bool(found) and room < 0)
        if (fits and full) or looked == LOOKED:
            return _records(connection, wanted, found), _cursor(after)
        if fits:
            found.append(row)
        after = (row.used_at, row.id)
    return _records(connection, wanted, found), None


def _picky(wanted: SessionFilter) -> bool:
    """Whether many sessions may have to be read for one match."""
    return bool(wanted.metadata or wanted.query)


def _records(
    connection: Connection, wanted: SessionFilter, found: Sequence[Any]
) -> list[SessionRecord]:
    """Return the records of rows; a session that was deleted meanwhile is left out."""
    if _picky(wanted) and found:
        ids = [row.id for row in found]
        whole = connection.execute(select(schema.session).where(_s.id.in_(ids)))
        by_id = {row.id: row for row in whole}
        found = [by_id[key] for key in ids if key in by_id]
    return [rows.session_record(mapping(row)) for row in found]


def _candidates(
    connection: Connection, wanted: SessionFilter, after: Position | None
) -> Iterator[tuple[Any, bool]]:
    """Yield the sessions that the indexes find, and whether the rest of the filter matches them."""
    picky = _picky(wanted)
    size = CHUNK if picky else wanted.limit + 1
    while True:
        chunk = connection.execute(_behind(_indexed(wanted), after).limit(size)).all()
        written = _summaries(connection, chunk) if wanted.query else {}
        for row in chunk:
            yield row, not picky or _fits(row, wanted, written.get(row.id, ""))
        if len(chunk) < size:
            return
        after = (chunk[-1].used_at, chunk[-1].id)


def _indexed(wanted: SessionFilter) -> Select[Any]:
    statement = _LOOK if _picky(wanted) else select(schema.session)
    if wanted.owner is not None:
        statement = statement.where(_s.owner == wanted.owner)
    if wanted.namespace is not None:
        statement = statement.where(_s.namespace == wanted.namespace)
    if wanted.name_prefix:
        prefix = wanted.name_prefix
        statement = statement.where(func.substr(_s.name, 1, len(prefix)) == prefix)
    if wanted.statuses is not None:
        statement = statement.where(_s.status.in_([status.value for status in wanted.statuses]))
    if wanted.updated_since is not None:
        statement = statement.where(_s.used_at >= wanted.updated_since)
    for label, value in (wanted.labels or {}).items():
        statement = statement.where(_s[label] == value)
    return statement.order_by(_s.used_at.desc(), _s.id.desc())


def _behind(statement: Select[Any], after: Position | None) -> Select[Any]:
    if after is None:
        return statement
    used_at, session_id = after
    later = and_(_s.used_at == used_at, _s.id < session_id)
    # The first condition is implied by the second, but an index can use it.
    return statement.where(_s.used_at <= used_at, or_(_s.used_at < used_at, later))


def _fits(row: Any, wanted: SessionFilter, written: str) -> bool:
    metadata = cast("dict[str, Any]", loads(row.metadata))
    for key, value in (wanted.metadata or {}).items():
        if key not in metadata or not same_json(metadata[key], value):
            return False
    if not wanted.query:
        return True
    labels = [getattr(row, label) or "" for label in LABELS]
    texts = [row.name or "", *labels, written, *_texts(metadata)]
    sought = wanted.query.casefold()
    return any(sought in text.casefold() for text in texts)


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a JSON value, without the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[str, object]", value).values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)


def _summaries(connection: Connection, chunk: Sequence[Any]) -> dict[str, str]:
    ids = [row.id for row in chunk]
    found = connection.execute(_SUMMARIES, {"ids": packed(ids)})
    return {row[0]: "\n".join([row[1], *loads(row[2])]) for row in found}


def _cursor(after: Position | None) -> str:
    text = dumps(after)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(cursor: str) -> Position:
    """Read a cursor.

    Raises:
        InvalidArgument: when it is not a cursor of `page`.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        used_at, session_id = loads(text)
        return float(used_at), str(session_id)
    except (ValueError, TypeError, binascii.Error) as error:
        raise InvalidArgument("This is not the cursor of a page of sessions.") from error


__all__ = ["page", "position"]
