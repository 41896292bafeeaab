"""The sessions of agno 2 and 3: tables of SqliteDb, with the runs in the row of their session or in a table of their own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final, cast

from ....sessions.journal.model_answer import ModelAnswer
from ....sessions.json_codec import JSON
from .agno_runs import EMPTY, MEDIA, JournalOfRuns
from .foreign import (
    MAX_BYTES,
    Importable,
    Sessions,
    Unreadable,
    foreign_session,
    open_database,
    read_json,
    tables_of,
)

SESSION_COLUMNS: Final = {"session_id", "session_type", "session_data", "created_at"}
LABELS: Final = ("user_id", "agent_id", "team_id", "workflow_id")
DATA: Final = ("agent_data", "team_data", "workflow_data")
READ_COLUMNS: Final = (
    *SESSION_COLUMNS,
    *LABELS,
    *DATA,
    "metadata",
    "summary",
    "runs",
    "updated_at",
)
RUN_COLUMNS: Final = {"run_id", "session_id", "run_data", "run_index"}
SUMMARY_FIELDS: Final = {"summary", "topics", "updated_at"}
SESSION_DATA: Final = "session_data"
"""The key of a state that has what the session data had besides a state."""
_NOT_AS_WRITTEN: Final = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
)
"""Errors of values that have another type or range than those of agno."""


def read_agno(file: Path) -> tuple[int, Sessions]:
    """Return how many sessions a database has, and the sessions. It is only read.

    Raises:
        OSError, sqlite3.Error: it cannot be read, or is no database of agno.
    """
    with closing(open_database(file)) as connection:
        tables = tables_of(connection)
        sessions = [table for table, columns in tables.items() if columns >= SESSION_COLUMNS]
        counts = (f"SELECT count(*) FROM {_quote(table)}" for table in sessions)
        count = sum(connection.execute(each).fetchone()[0] for each in counts)
    if not sessions:
        raise OSError(0, "has no sessions of agno 2 or 3")
    return count, _sessions(file, tables, sessions)


def _quote(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _sessions(
    file: Path, tables: dict[str, set[str]], sessions: list[str]
) -> Iterator[Importable | Unreadable]:
    runs = [table for table, columns in tables.items() if columns >= RUN_COLUMNS]
    with closing(open_database(file)) as connection:
        for table in sessions:
            place, columns = f"{file.resolve()}#{table}", tables[table].intersection(READ_COLUMNS)
            try:
                elsewhere = _rows_elsewhere(connection, tables, {*sessions, *runs})
                yield from _sessions_of(connection, place, table, columns, runs, elsewhere)
            except sqlite3.Error as error:
                yield Unreadable(table, f"the rest of the table cannot be read ({error})")


def _sessions_of(
    connection: sqlite3.Connection,
    place: str,
    table: str,
    columns: set[str],
    run_tables: list[str],
    elsewhere: dict[object, list[str]],
) -> Iterator[Importable | Unreadable]:
    # A generated column may compute a value of any size for each row, so each column is named and each row is read alone.
    query = f"SELECT {', '.join(map(_quote, columns))} FROM {_quote(table)} WHERE rowid = ?"
    for (number,) in connection.execute(f"SELECT rowid FROM {_quote(table)} ORDER BY created_at"):
        source = f"row {number}"
        try:
            row: JSON = dict(connection.execute(query, [number]).fetchone())
            source = str(row["session_id"])
            session = _session(source, place, row, _runs(connection, row, run_tables))
            session.left_out += elsewhere.get(row["session_id"], ())
            yield session
        except (*_NOT_AS_WRITTEN, sqlite3.DataError) as error:
            yield Unreadable(source, f"it is not as agno writes it ({error})")


def _rows_elsewhere(
    connection: sqlite3.Connection, tables: dict[str, set[str]], read: set[str]
) -> dict[object, list[str]]:
    """Return the names and counts of rows that no import reads, by the id of their session."""
    found: dict[object, list[str]] = {}
    for table, columns in tables.items():
        if "session_id" in columns and table not in read:
            query = f"SELECT session_id, count(*) FROM {_quote(table)} GROUP BY session_id"
            for id_, count in connection.execute(query):
                found.setdefault(id_, []).append(f"rows of {table} ({count})")
    return found


def _runs(connection: sqlite3.Connection, row: JSON, tables: list[str]) -> list[object]:
    """Return the runs of a session, as far as they are JSON, else as the texts that they are."""
    runs = _or_text(row.get("runs"), json.loads)
    # agno 2 has them in a list.
    old = cast("list[object]", runs) if isinstance(runs, list) else [runs] if runs else []
    found: dict[str, object] = {}
    size = 0
    for table in tables:
        query = (
            f"SELECT run_id, run_data FROM {_quote(table)} WHERE session_id = ? ORDER BY run_index"
        )
        for id_, data in connection.execute(query, [row["session_id"]]):
            size += len(data or "")
            if size > MAX_BYTES:
                raise ValueError(f"its runs have more than {MAX_BYTES} bytes")
            found[str(id_)] = _or_text(data, json.loads)
    # The migration to agno 3 copies the runs of a row and leaves them there.
    kept = [run for run in old if _id_of(run) not in found]
    return [*kept, *found.values()]


def _id_of(run: object) -> str:
    return str(cast("JSON", run).get("run_id")) if isinstance(run, dict) else ""


def _session(source: str, place: str, row: JSON, runs: list[object]) -> Importable:
    data, summary = _object(row["session_data"]), _object(row.get("summary"))
    created_at = float(row["created_at"] or 0)
    used_at = float(row.get("updated_at") or created_at)
    journal = JournalOfRuns(created_at)
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
        **{key: _or_text(row.get(key)) for key in DATA},
        "summary": {key: value for key, value in summary.items() if key not in SUMMARY_FIELDS},
    }
    others = {key: value for key, value in data.items() if value not in EMPTY and key not in MEDIA}
    if others and SESSION_DATA not in state:
        state = {**state, SESSION_DATA: others}
    elif others:
        journal.leave_out(f"{', '.join(others)} of session_data")
    kept_summary = _summary(summary, used_at, journal) if summary.get("summary") else None
    return foreign_session(
        source,
        "agno",
        source,
        place,
        created_at=created_at or None,
        used_at=used_at or None,
        state=state,
        metadata=_object(row.get("metadata")),
        details={key: value for key, value in details.items() if value},
        labels={label: row.get(label) or None for label in LABELS},
        entries=journal.entries,
        summary=kept_summary,
        left_out=[f"{part} ({count})" for part, count in journal.left_out.items()],
    )


def _summary(fields: JSON, updated_at: float, journal: JournalOfRuns) -> JSON:
    if fields.get("updated_at"):
        updated_at = datetime.fromisoformat(fields["updated_at"]).timestamp()
    kept = ModelAnswer.of(fields)
    if kept.topics != (fields.get("topics") or []) or kept.text != fields["summary"].strip():
        journal.leave_out("the end of its summary or topics")
    return {"text": kept.text, "topics": kept.topics, "updated_at": updated_at}


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
