"""The sessions of agno 2 and 3: tables of SqliteDb, with the runs in the row of their session or in a table of their own."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from .....sessions.json_codec import JSON
from ...errors import CommandError
from .agno_runs import JournalOfRuns
from .foreign import LARGEST, ForeignSession, Sessions, Unreadable, read_json

SESSION_COLUMNS: Final = {"session_id", "session_type", "session_data", "created_at"}
READ_COLUMNS: Final = (
    *("session_id", "session_type", "session_data", "metadata", "summary", "runs"),
    *("created_at", "updated_at", "user_id", "agent_id", "team_id", "workflow_id"),
)
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


def _connect(file: Path) -> sqlite3.Connection:
    # SQLite would wait for the writer of a pipe.
    if file.exists() and not stat.S_ISREG(file.stat().st_mode):
        raise OSError(0, "it is no regular file")
    uri = f"{file.absolute().as_uri()}?mode=ro"
    # Each page of the import may run in another thread.
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
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
    file: Path, tables: dict[str, list[str]], run_tables: list[str]
) -> Iterator[ForeignSession | Unreadable]:
    with closing(_connect(file)) as connection:
        for table, columns in tables.items():
            try:
                yield from _sessions_of(connection, table, columns, run_tables)
            except sqlite3.Error as error:
                yield Unreadable(table, f"the rest of the table cannot be read ({error})")


def _sessions_of(
    connection: sqlite3.Connection, table: str, columns: list[str], run_tables: list[str]
) -> Iterator[ForeignSession | Unreadable]:
    # A generated column may compute a value of any size for each row, so each column is named and each row is read alone.
    query = f"SELECT {', '.join(map(_quote, columns))} FROM {_quote(table)} WHERE rowid = ?"
    for (number,) in connection.execute(f"SELECT rowid FROM {_quote(table)} ORDER BY created_at"):
        source = f"row {number}"
        try:
            row: JSON = dict(connection.execute(query, [number]).fetchone())
            source = str(row["session_id"])
            yield _session(source, row, _runs(connection, row, run_tables))
        except (*_NOT_AS_WRITTEN, sqlite3.DataError) as error:
            yield Unreadable(source, f"it is not as agno writes it ({error})")


def _runs(connection: sqlite3.Connection, row: JSON, tables: list[str]) -> list[JSON]:
    runs = _list(row.get("runs"))
    size = 0
    for table in tables:
        query = f"SELECT run_data FROM {_quote(table)} WHERE session_id = ? ORDER BY run_index"
        for (data,) in connection.execute(query, [row["session_id"]]):
            size += len(data or "")
            if size > LARGEST:
                raise ValueError(f"its runs have more than {LARGEST} bytes")
            runs.append(_object(data))
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
