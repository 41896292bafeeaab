"""The sessions of agno 2 and 3: tables of SqliteDb, with the runs in the row of their session or in a table of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from .....sessions.json_codec import JSON
from ...errors import CommandError
from .agno_runs import JournalOfRuns
from .foreign import ForeignSession, Sessions, Unreadable, read_json

SESSION_COLUMNS: Final = {"session_id", "session_type", "session_data", "created_at"}
RUN_COLUMNS: Final = {"run_id", "session_id", "run_data", "run_index"}
SUMMARY_LENGTH: Final = 20_000
TOPICS: Final = 50
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
        with closing(_connect(file)) as connection:
            tables = _tables(connection)
            sessions = [table for table, columns in tables.items() if columns >= SESSION_COLUMNS]
            runs = [table for table, columns in tables.items() if columns >= RUN_COLUMNS]
            count = sum(_count(connection, table) for table in sessions)
    except sqlite3.Error as error:
        raise CommandError.usage(f"{file}: {error}; name a database of agno's SqliteDb") from None
    if not sessions:
        raise CommandError.usage(
            f"{file}: has no sessions of agno 2 or 3; name a database of their SqliteDb"
        )
    return count, _sessions(file, sessions, runs)


def _connect(file: Path) -> sqlite3.Connection:
    uri = f"{file.absolute().as_uri()}?mode=ro"
    # Each page of the import may run in another thread.
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def _tables(connection: sqlite3.Connection) -> dict[str, set[str]]:
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: {
            row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [name])
        }
        for (name,) in names
    }


def _count(connection: sqlite3.Connection, table: str) -> int:
    return connection.execute(f"SELECT count(*) FROM {_quote(table)}").fetchone()[0]


def _quote(table: str) -> str:
    escaped = table.replace('"', '""')
    return f'"{escaped}"'


def _sessions(
    file: Path, tables: list[str], run_tables: list[str]
) -> Iterator[ForeignSession | Unreadable]:
    with closing(_connect(file)) as connection:
        for table in tables:
            try:
                yield from _sessions_of(connection, table, run_tables)
            except sqlite3.Error as error:
                yield Unreadable(table, f"the rest of the table cannot be read ({error})")


def _sessions_of(
    connection: sqlite3.Connection, table: str, run_tables: list[str]
) -> Iterator[ForeignSession | Unreadable]:
    for row in connection.execute(f"SELECT * FROM {_quote(table)} ORDER BY created_at"):
        source = str(row["session_id"])
        try:
            yield _session(source, dict(row), _runs(connection, row, run_tables))
        except _NOT_AS_WRITTEN as error:
            yield Unreadable(source, f"it is not as agno writes it ({error})")


def _runs(connection: sqlite3.Connection, row: sqlite3.Row, tables: list[str]) -> list[JSON]:
    runs = _list(row["runs"]) if "runs" in row.keys() else []  # noqa: SIM118 a row is no mapping
    for table in tables:
        query = f"SELECT run_data FROM {_quote(table)} WHERE session_id = ? ORDER BY run_index"
        runs += [_object(data) for (data,) in connection.execute(query, [row["session_id"]])]
    return runs


def _session(source: str, row: JSON, runs: list[JSON]) -> ForeignSession:
    data, about = _object(row["session_data"]), _object(row.get("metadata"))
    journal = JournalOfRuns(float(row["created_at"] or 0))
    for run in runs:
        journal.add(run)
    journal.leave_out_media(data)
    details = {
        "session_name": data.get("session_name"),
        "session_type": row.get("session_type"),
        "created_at": row.get("created_at"),
    }
    labels = ("user_id", "agent_id", "team_id", "workflow_id")
    return ForeignSession(
        source=source,
        origin=f"agno:{source}",
        name=source,
        state=_object(data.get("session_state")),
        metadata={**about, "agno": {key: value for key, value in details.items() if value}},
        labels={label: row.get(label) or None for label in labels},
        entries=journal.entries,
        summary=_summary(_object(row.get("summary")), float(row.get("updated_at") or 0)),
        left_out=[f"{part} ({count})" for part, count in journal.left_out.items()],
    )


def _summary(fields: JSON, updated_at: float) -> JSON | None:
    if not fields.get("summary"):
        return None
    if fields.get("updated_at"):
        updated_at = datetime.fromisoformat(fields["updated_at"]).timestamp()
    topics = [str(topic)[:100] for topic in fields.get("topics") or ()]
    return {
        "text": str(fields["summary"])[:SUMMARY_LENGTH],
        "topics": topics[:TOPICS],
        "updated_at": updated_at,
    }


def _object(value: object) -> JSON:
    decoded = _decode(value)
    if not isinstance(decoded, dict):
        raise ValueError("a value should be an object")
    return cast("JSON", decoded)


def _list(value: object) -> list[JSON]:
    decoded = _decode(value)
    return (
        [_object(each) for each in cast("list[Any]", decoded)] if isinstance(decoded, list) else []
    )


def _decode(value: object) -> object:
    """Return the value of a column: JSON, which agno 2 writes as a JSON string of JSON."""
    for _ in range(2):
        if isinstance(value, str | bytes):
            value = read_json(value)
    return {} if value is None else value


__all__ = ["read_agno"]
