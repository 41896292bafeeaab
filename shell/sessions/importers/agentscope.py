"""The sessions of agentscope 1: files of JSON, or rows of a table, with the states of modules by their names."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from ....sessions.ids import name_of_id
from ....sessions.json_codec import JSON
from ....tools.foreign_file import read_foreign
from ...errors import CommandError
from .foreign import (
    LARGEST,
    ForeignSession,
    Sessions,
    Unreadable,
    open_database,
    read_json,
    tables_of,
)

MODULES: Final = "modules"
"""The key in the state of a session under which the client's load_session_state() finds modules."""
TABLE: Final = "as_session"
COLUMNS: Final = {"session_id", "session_data", "created_at", "updated_at"}


def read_agentscope(source: Path, *, users: bool, named: Sequence[str]) -> tuple[int, Sessions]:
    """Return how many sessions a folder of JSONSession or a database of SqliteSession has, and the sessions.

    `users`: names of files, or ids, may begin with the id of a user and an underscore; `named` are such users. The session
    is then in the namespace of the user.

    Raises:
        CommandError: there is no such folder or database, or it cannot be read.
    """
    try:
        if not source.is_dir():
            return _count(source), _rows(source, users, named)
        files = sorted(path for path in source.iterdir() if path.suffix == ".json")
    except (OSError, sqlite3.Error) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CommandError.usage(
            f"{source}: {problem}; name a folder of JSONSession, or a database of SqliteSession"
        ) from None
    return len(files), _files(files, users, named)


def _count(file: Path) -> int:
    with closing(open_database(file)) as connection:
        if not tables_of(connection).get(TABLE, set()) >= COLUMNS:
            raise OSError(0, f"it has no table {TABLE}")
        return connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()[0]


def _files(
    files: list[Path], users: bool, named: Sequence[str]
) -> Iterator[ForeignSession | Unreadable]:
    for file in files:
        try:
            # agentscope writes halves of surrogate pairs, too; editors of Windows write a byte order mark.
            text = read_foreign(file, LARGEST).decode("utf-8-sig", "surrogatepass")
            written_at = file.stat().st_mtime
            user, id_ = _user_of(file.stem, users, named)
            yield _session(file.name, file.resolve(), id_, user, text, written_at, written_at)
        except OSError as error:
            yield Unreadable(file.name, error.strerror or str(error))
        except (ValueError, RecursionError) as error:
            yield Unreadable(file.name, str(error))


def _rows(file: Path, users: bool, named: Sequence[str]) -> Iterator[ForeignSession | Unreadable]:
    query = f"SELECT session_id, session_data, created_at, updated_at FROM {TABLE} WHERE rowid = ?"
    with closing(open_database(file)) as connection:
        for (number,) in connection.execute(f"SELECT rowid FROM {TABLE} ORDER BY created_at"):
            source = f"row {number}"
            try:
                source, text, *times = connection.execute(query, [number]).fetchone()
                user, id_ = _user_of(str(source), users, named)
                yield _session(str(source), file.resolve(), id_, user, text, *map(_moment, times))
            except (sqlite3.Error, TypeError, ValueError, RecursionError) as error:
                yield Unreadable(str(source), str(error))


def _moment(text: str) -> float:
    """Return a moment that SQLite wrote, in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _user_of(text: str, users: bool, named: Sequence[str]) -> tuple[str, str]:
    """Return the user, empty for none, and the id in the name of a file.

    Raises:
        ValueError: users are not told from ids.
    """
    for user in sorted(named, key=len, reverse=True):
        if text.startswith(f"{user}_") and len(text) > len(user) + 1:
            return user, text[len(user) + 1 :]
    if not users or "_" not in text.strip("_"):
        return "", text
    user, _, id_ = text.partition("_")
    if not user or "_" in id_:
        raise ValueError("the user in its name may end at several underscores; add --user ID")
    return user, id_


def _session(
    source: str,
    place: Path,
    id_: str,
    user: str,
    text: str | bytes,
    created_at: float,
    used_at: float,
) -> ForeignSession:
    try:
        states = read_json(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(states, dict):
        raise ValueError("it holds no states of modules")
    states = cast("JSON", states)
    wrong = [name for name, state in states.items() if not isinstance(state, dict)]
    if wrong:
        raise ValueError(f"the state of {wrong[0]!r:.100} is no object")
    return ForeignSession(
        source=source,
        system="agentscope",
        id=id_,
        place=str(place),
        user=user,
        created_at=created_at,
        used_at=used_at,
        state={MODULES: states},
        labels={"user_id": name_of_id(user) or None},
    )
