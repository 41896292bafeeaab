"""Lists of sessions, page by page. Each function runs single statements on the connection it is given."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from ..errors import InvalidArgument
from ..json_codec import dumps, loads
from ..lifecycle import Status
from ..records import LABELS, SessionFilter, SessionOrder, SessionRecord
from ..state.merge import same_json
from . import rows, schema
from .dialect import may_have_text, rows_with_text
from .sealing.keyring import open_row, sealing_of

READ_LIMIT: Final = 10_000
"""Most sessions read for one page if a filter has no index. The page may then be short and still have a cursor."""
CHUNK: Final = 250
LARGEST_CHUNK: Final = 2_500
"""Sessions of a chunk when there were few matches before it. The database sorts all sessions for each chunk."""
LAST_NAME: Final = "\U0010ffff" * 128
"""The last of all names in the order of SQLite."""
PAGE_BYTES: Final = 1 << 20
"""Most bytes of metadata in a page; its first session is always returned."""

_s = schema.session.c
_COLUMNS = select(
    _s.id, _s.used_at, _s.created_at, _s.name, _s.metadata, *(_s[label] for label in LABELS)
)
_name: Final[ColumnElement[Any]] = func.coalesce(_s.name, "")
_summary = schema.summary.c
_names = attrgetter("name", *LABELS)
_TEXT_COLUMNS = _COLUMNS.add_columns(*schema.summary.c).outerjoin(
    schema.summary, _summary.session_id == _s.id
)
_SEARCHED: Final = [
    *(_s.name, *(_s[label] for label in LABELS)),
    *(_summary.text, _summary.topics, _s.metadata),
]

Position = tuple[float | str, str]
"""The value by which a session is sorted, and its id."""


def page(
    connection: Connection, session_filter: SessionFilter
) -> tuple[list[SessionRecord], str | None]:
    """Return a page in the order of the filter, and the cursor of the next page or None.

    The indexes of the owner and of the labels bound the rows that are read. Metadata and texts are compared here, value by
    value, so that a value is never mistaken for a part of another, on any database.

    Raises:
        InvalidArgument: when the filter has a cursor that this function did not return, or sorts sealed names.
    """
    if session_filter.order is SessionOrder.NAME and sealing_of(connection) is not None:
        raise InvalidArgument(
            "The names of sessions are sealed here, and cannot be sorted by.",
            recovery="Sort by another column.",
        )
    after = _position(session_filter.cursor, session_filter.order)
    matches: list[Any] = []
    room = PAGE_BYTES
    for read_count, (row, fits) in enumerate(_candidates(connection, session_filter, after)):
        room -= len(row.metadata) if fits else 0
        is_full = len(matches) == session_filter.limit or (bool(matches) and room < 0)
        if (fits and is_full) or read_count == READ_LIMIT:
            return _records(connection, session_filter, matches), _cursor(after)
        if fits:
            matches.append(row)
        after = _position_of(row, session_filter.order)
    return _records(connection, session_filter, matches), None


def _needs_reading(connection: Connection, session_filter: SessionFilter) -> bool:
    """Whether many sessions may have to be read for one match."""
    names = session_filter.name_prefix or session_filter.labels
    is_sealed = names and sealing_of(connection) is not None
    return bool(session_filter.metadata or session_filter.query or is_sealed)


def _records(
    connection: Connection, session_filter: SessionFilter, matches: Sequence[Any]
) -> list[SessionRecord]:
    """Return the records of rows; a session that was deleted meanwhile is left out."""
    if _needs_reading(connection, session_filter) and matches:
        ids = [row.id for row in matches]
        full_rows = connection.execute(select(schema.session).where(_s.id.in_(ids)))
        by_id = {row.id: row for row in full_rows}
        matches = [by_id[key] for key in ids if key in by_id]
    return [rows.session_record(open_row(connection, row, schema.session)) for row in matches]


def _candidates(
    connection: Connection, session_filter: SessionFilter, after: Position | None
) -> Iterator[tuple[Any, bool]]:
    """Yield the sessions that the indexes find, and whether the rest of the filter matches them."""
    needs_reading = _needs_reading(connection, session_filter)
    # SQLite leaves out most sessions without the text by itself; see rows_with_text().
    is_coarse = needs_reading and (not session_filter.query or connection.dialect.name != "sqlite")
    size = CHUNK if is_coarse else session_filter.limit + 1
    while True:
        statement = _behind(_indexed_query(connection, session_filter), session_filter, after)
        chunk = connection.execute(statement.limit(size)).all()
        for row in chunk:
            yield row, not needs_reading or _fits(connection, row, session_filter)
        if len(chunk) < size:
            return
        size = max(size, min(size * 4, LARGEST_CHUNK))
        after = _position_of(chunk[-1], session_filter.order)


def _indexed_query(connection: Connection, session_filter: SessionFilter) -> Select[Any]:
    statement, is_sealed = select(schema.session), sealing_of(connection) is not None
    if _needs_reading(connection, session_filter):
        statement = _COLUMNS
    if session_filter.query:
        condition = rows_with_text(session_filter.query.casefold(), _SEARCHED)
        statement = _TEXT_COLUMNS.where(condition)
    if session_filter.owner is not None:
        statement = statement.where(_s.owner == session_filter.owner)
    if session_filter.namespace is not None:
        statement = statement.where(_s.namespace == session_filter.namespace)
    if session_filter.name_prefix and not is_sealed:
        statement = statement.where(*_begins(connection, session_filter))
    if session_filter.statuses is not None:
        statement = statement.where(_has_status(session_filter, session_filter.statuses))
    if session_filter.parent is not None:
        statement = statement.where(_s.parent == session_filter.parent)
    if session_filter.driver is not None:
        # The text is that of ControlLease, which begins with the driver.
        beginning = dumps({"driver": session_filter.driver.value}).removesuffix("}")
        statement = statement.where(_s.control.startswith(beginning, autoescape=True))
    if session_filter.updated_since is not None:
        statement = statement.where(_s.used_at >= session_filter.updated_since)
    for label, value in ({} if is_sealed else session_filter.labels or {}).items():
        statement = statement.where(_s[label] == value)
    column = _sort_column(session_filter.order)
    if _is_descending(session_filter):
        return statement.order_by(column.desc(), _s.id.desc())
    return statement.order_by(column, _s.id)


def _begins(connection: Connection, session_filter: SessionFilter) -> Sequence[ColumnElement[bool]]:
    """Return the conditions that the names begin with the prefix."""
    prefix = session_filter.name_prefix or ""
    if connection.dialect.name == "postgresql":
        return (_s.name.startswith(prefix, autoescape=True),)
    begins = func.substr(_s.name, 1, len(prefix)) == prefix
    if connection.dialect.name != "sqlite" or session_filter.owner is None:
        return (begins,)
    # SQLite would sort all that begin so. Of many, the most recently used ones soon fill a page.
    these = (_s.name >= prefix, _s.name <= prefix + LAST_NAME)
    some = select(_s.id).where(_s.owner == session_filter.owner, *these).limit(READ_LIMIT // 10)
    count = connection.scalar(select(func.count()).select_from(some.subquery())) or 0
    return (begins, *these) if count < READ_LIMIT // 10 else (begins,)


def _has_status(session_filter: SessionFilter, statuses: Sequence[Status]) -> ColumnElement[bool]:
    if len(statuses) == 1 and not (session_filter.name_prefix or session_filter.labels):
        return _s.status == statuses[0].value
    # An index would find all of several statuses, which then had to be sorted.
    return _s.status.not_in([status.value for status in Status if status not in statuses])


def _behind(
    statement: Select[Any], session_filter: SessionFilter, after: Position | None
) -> Select[Any]:
    if after is None:
        return statement
    value: Any = after[0]
    session_id = after[1]
    column = _sort_column(session_filter.order)
    is_same = column == value
    # The first condition is implied by the second, but an index can use it.
    if _is_descending(session_filter):
        later = or_(column < value, and_(is_same, _s.id < session_id))
        return statement.where(column <= value, later)
    return statement.where(column >= value, or_(column > value, and_(is_same, _s.id > session_id)))


def _sort_column(order: SessionOrder) -> ColumnElement[Any]:
    match order:
        case SessionOrder.NAME:
            return _name
        case SessionOrder.CREATED:
            return _s.created_at
        case SessionOrder.USED:
            return _s.used_at


def _is_descending(session_filter: SessionFilter) -> bool:
    return (session_filter.order is SessionOrder.NAME) is session_filter.reverse


def _position_of(row: Any, order: SessionOrder) -> Position:
    if order is SessionOrder.NAME:
        return row.name or "", row.id
    return (row.created_at if order is SessionOrder.CREATED else row.used_at), row.id


def cursor_after(record: SessionRecord, order: SessionOrder) -> str:
    """Return the cursor of the page that begins after a session."""
    return _cursor(_position_of(record, order))


def _fits(connection: Connection, row: Any, session_filter: SessionFilter) -> bool:
    row = SimpleNamespace(**open_row(connection, row, schema.session, schema.summary))
    text_to_find = (session_filter.query or "").casefold()
    if text_to_find and not may_have_text(
        text_to_find, *_names(row), row.text, row.topics, row.metadata
    ):
        return False
    if not (row.name or "").startswith(session_filter.name_prefix or ""):
        return False
    labels = (session_filter.labels or {}).items()
    if any(getattr(row, label) != value for label, value in labels):
        return False
    metadata = cast("dict[str, Any]", loads(row.metadata))
    for key, value in (session_filter.metadata or {}).items():
        if key not in metadata or not same_json(metadata[key], value):
            return False
    if not text_to_find:
        return True
    topics: list[str] = [] if row.topics is None else loads(row.topics)
    summary = "\n".join([row.text or "", *topics])
    texts = [*filter(None, _names(row)), summary, *_texts(metadata)]
    return any(text_to_find in text.casefold() for text in texts)


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


def _cursor(after: Position | None) -> str:
    text = dumps(after)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _position(cursor: str | None, order: SessionOrder) -> Position | None:
    if cursor is None:
        return None
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        value, session_id = loads(text)
        if order is SessionOrder.NAME:
            return str(value), str(session_id)
        return float(value), str(session_id)
    except (ValueError, TypeError, binascii.Error) as error:
        raise InvalidArgument("This is not the cursor of a page of sessions.") from error
