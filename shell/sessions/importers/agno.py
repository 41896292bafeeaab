"""The sessions of agno 2 and 3: tables of SqliteDb, with the runs in the row of their session or in a table of their own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final, cast

from ....sessions.json_codec import JSON
from ...errors import CommandError
from .agno_runs import MEDIA, JournalOfRuns
from .foreign import (
    LARGEST,
    ForeignSession,
    Sessions,
    Unreadable,
    open_database,
    read_json,
    tables_of,
)

SESSION_COLUMNS: Final = {"session_id", "session_type", "session_data", "created_at"}
READ_COLUMNS: Final = (
    *("session_id", "session_type", "session_data", "metadata", "summary", "runs"),
    *("created_at", "updated_at", "user_id", "agent_id", "team_id", "workflow_id"),
    *("agent_data", "team_data", "workflow_data"),
)
RUN_COLUMNS: Final = {"run_id", "session_id", "run_data", "run_index"}
SUMMARY_LENGTH: Final = 20_000
TOPICS: Final = 50
TOPIC_LENGTH: Final = 100
SUMMARY_FIELDS: Final = {"summary", "topics", "updated_at"}
SESSION_DATA: Final = "session_data"
"""The key of a state that has what the session data had besides a state."""
_NOT_AS_WRITTEN: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors of values that have another type or range than those of agno."""


def read_agno(file: Path) -> tuple[int, Sessions]:
    """Return how many sessions a database has, and the sessions. It is only read.

    Raises:
        CommandError: it cannot be read, or is no database of agno.
    """
    try:
        with closing(open_database(file)) as connection:
            tables = tables_of(connection)
            sessions = {
                table: [name for name in READ_COLUMNS if name in columns]
                for table, columns in tables.items()
                if columns >= SESSION_COLUMNS
            }
            runs = [table for table, columns in tables.items() if columns >= RUN_COLUMNS]
            count = sum(_count(connection, table) for table in sessions)
    except OSError as error:
        raise CommandError.usage(f"{file}: {error.strerror}; name another file") from None
    except sqlite3.Error as error:
        raise CommandError.usage(f"{file}: {error}; name a database of agno's SqliteDb") from None
    if not sessions:
        raise CommandError.usage(
            f"{file}: has no sessions of agno 2 or 3; name a database of their SqliteDb"
        )
    return count, _sessions(file, sessions, runs)


def _count(connection: sqlite3.Connection, table: str) -> int:
    return connection.execute(f"SELECT count(*) FROM {_quote(table)}").fetchone()[0]


def _quote(table: str) -> str:
    escaped = table.replace('"', '""')
    return f'"{escaped}"'


def _sessions(
    file: Path, tables: dict[str, list[str]], run_tables: list[str]
) -> Iterator[ForeignSession | Unreadable]:
    with closing(open_database(file)) as connection:
        for table, columns in tables.items():
            try:
                place = f"{file.resolve()}#{table}"
                yield from _sessions_of(connection, place, table, columns, run_tables)
            except sqlite3.Error as error:
                yield Unreadable(table, f"the rest of the table cannot be read ({error})")


def _sessions_of(
    connection: sqlite3.Connection,
    place: str,
    table: str,
    columns: list[str],
    run_tables: list[str],
) -> Iterator[ForeignSession | Unreadable]:
    # A generated column may compute a value of any size for each row, so each column is named and each row is read alone.
    query = f"SELECT {', '.join(map(_quote, columns))} FROM {_quote(table)} WHERE rowid = ?"
    for (number,) in connection.execute(f"SELECT rowid FROM {_quote(table)} ORDER BY created_at"):
        source = f"row {number}"
        try:
            row: JSON = dict(connection.execute(query, [number]).fetchone())
            source = str(row["session_id"])
            yield _session(source, place, row, _runs(connection, row, run_tables))
        except (*_NOT_AS_WRITTEN, sqlite3.DataError) as error:
            yield Unreadable(source, f"it is not as agno writes it ({error})")


def _runs(connection: sqlite3.Connection, row: JSON, tables: list[str]) -> list[object]:
    """Return the runs of a session, as far as they are JSON, else as the texts that they are."""
    runs = _or_text(row.get("runs"), json.loads)
    # agno 2 has them in a list.
    runs = cast("list[object]", runs) if isinstance(runs, list) else [runs] if runs else []
    size = 0
    for table in tables:
        query = f"SELECT run_data FROM {_quote(table)} WHERE session_id = ? ORDER BY run_index"
        for (data,) in connection.execute(query, [row["session_id"]]):
            size += len(data or "")
            if size > LARGEST:
                raise ValueError(f"its runs have more than {LARGEST} bytes")
            runs.append(_or_text(data, json.loads))
    return runs


def _session(source: str, place: str, row: JSON, runs: list[object]) -> ForeignSession:
    data, about = _object(row["session_data"]), _object(row.get("metadata"))
    journal = JournalOfRuns(float(row["created_at"] or 0))
    for run in runs:
        try:
            journal.add(_object(run))
        except _NOT_AS_WRITTEN:
            journal.leave_out("runs that are not as agno writes them")
    journal.leave_out_media(data)
    state = _object(data.pop("session_state", None))
    details = {
        "session_name": data.pop("session_name", None),
        "session_metrics": data.pop("session_metrics", None),
        "session_type": row.get("session_type"),
        "created_at": row.get("created_at"),
        **{key: _or_text(row.get(key)) for key in ("agent_data", "team_data", "workflow_data")},
    }
    others = {key: value for key, value in data.items() if value and key not in MEDIA}
    if others and SESSION_DATA not in state:
        state = {**state, SESSION_DATA: others}
    elif others:
        journal.leave_out(f"{', '.join(others)} of session_data")
    summary = _object(row.get("summary"))
    used_at = float(row.get("updated_at") or row["created_at"] or 0)
    kept_summary = _summary(summary, used_at, journal)
    details["summary"] = {key: value for key, value in summary.items() if key not in SUMMARY_FIELDS}
    labels = ("user_id", "agent_id", "team_id", "workflow_id")
    return ForeignSession(
        source=source,
        system="agno",
        id=source,
        place=place,
        created_at=float(row["created_at"] or 0) or None,
        used_at=used_at or None,
        state=state,
        metadata=about,
        details={key: value for key, value in details.items() if value},
        labels={label: row.get(label) or None for label in labels},
        entries=journal.entries,
        summary=kept_summary,
        left_out=[f"{part} ({count})" for part, count in journal.left_out.items()],
    )


def _summary(fields: JSON, updated_at: float, journal: JournalOfRuns) -> JSON | None:
    if not fields.get("summary"):
        return None
    if fields.get("updated_at"):
        updated_at = datetime.fromisoformat(fields["updated_at"]).timestamp()
    text, topics = str(fields["summary"]), [str(topic) for topic in fields.get("topics") or ()]
    kept = [topic[:TOPIC_LENGTH] for topic in topics[:TOPICS]]
    if kept != topics or len(text) > SUMMARY_LENGTH:
        journal.leave_out("the end of its summary or topics")
    return {
        "text": text[:SUMMARY_LENGTH],
        "topics": kept,
        "updated_at": updated_at,
    }


def _object(value: object) -> JSON:
    decoded = _decode(value)
    if not isinstance(decoded, dict):
        raise ValueError("a value should be an object")
    return cast("JSON", decoded)


def _or_text(value: object, read: Callable[[str | bytes], object] = read_json) -> object:
    try:
        return _decode(value, read)
    except (ValueError, RecursionError):
        return value


def _decode(value: object, read: Callable[[str | bytes], object] = read_json) -> object:
    """Return the value of a column: JSON, which agno 2 writes as a JSON string of JSON."""
    for _ in range(2):
        if isinstance(value, str | bytes):
            value = read(value)
    return {} if value is None else value
