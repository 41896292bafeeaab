"""The sessions of agentscope 1: files of JSON, or rows of a table, with the states of modules by their names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, cast

from ....sessions.ids import name_of_id
from ....sessions.json_codec import JSON
from ....tools.foreign_file import read_foreign
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

MODULES: Final = "modules"
"""The key in the state of a session under which the client's load_session_state() finds modules."""
TABLE: Final = "as_session"
COLUMNS: Final = {"session_id", "session_data", "created_at", "updated_at"}
Content: TypeAlias = tuple[str | bytes, float, float]
"""The text of a session, and when it was created and used."""


def read_agentscope(source: Path, *, users: bool, named: Sequence[str]) -> tuple[int, Sessions]:
    """Return how many sessions a folder of JSONSession or a database of SqliteSession has, and the sessions.

    `users`: names of files, or ids, may begin with the id of a user and an underscore; `named` are such users. The session
    is then in the namespace of the user.

    Raises:
        OSError, sqlite3.Error: there is no such folder or database, or it cannot be read.
    """
    if source.is_dir():
        files = sorted(path for path in source.iterdir() if path.suffix == ".json")
        parts = ((file.name, file.stem, file, partial(_read_file, file)) for file in files)
        return len(files), _sessions(parts, users, named)
    with closing(open_database(source)) as connection:
        if not tables_of(connection).get(TABLE, set()) >= COLUMNS:
            raise OSError(0, f"it has no table {TABLE}")
        count = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()[0]
    return count, _sessions(_rows(source), users, named)


def _read_file(file: Path) -> Content:
    # agentscope writes halves of surrogate pairs, too; editors of Windows write a byte order mark.
    text = read_foreign(file, MAX_BYTES).decode("utf-8-sig", "surrogatepass")
    written_at = file.stat().st_mtime
    return text, written_at, written_at


def _rows(file: Path) -> Iterator[tuple[str, str, Path, Callable[[], Content]]]:
    query = f"SELECT session_data, created_at, updated_at FROM {TABLE} WHERE rowid = ?"

    def read(number: int) -> Content:
        text, *times = connection.execute(query, [number]).fetchone()
        # SQLite writes times of UTC.
        created, used = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in times)
        return text, created.timestamp(), used.timestamp()

    with closing(open_database(file)) as connection:
        ids = f"SELECT rowid, session_id FROM {TABLE} ORDER BY created_at"
        for number, id_ in connection.execute(ids):
            yield str(id_), str(id_), file, partial(read, number)


def _sessions(
    parts: Iterator[tuple[str, str, Path, Callable[[], Content]]], users: bool, named: Sequence[str]
) -> Iterator[Importable | Unreadable]:
    for source, text, place, read in parts:
        try:
            user, id_ = _user_of(text, users, named)
            content, created_at, used_at = read()
            yield foreign_session(
                source,
                "agentscope",
                id_,
                str(place.resolve()),
                user=user,
                created_at=created_at,
                used_at=used_at,
                state={MODULES: _states(content)},
                labels={"user_id": name_of_id(user) or None},
            )
        except (OSError, sqlite3.Error, TypeError, ValueError, RecursionError) as error:
            yield Unreadable(source, getattr(error, "strerror", None) or str(error))


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


def _states(text: str | bytes) -> JSON:
    try:
        states = read_json(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(states, dict):
        raise ValueError("it holds no states of modules")
    states = cast("JSON", states)
    for name, state in states.items():
        if not isinstance(state, dict):
            raise ValueError(f"the state of {name!r:.100} is no object")
    return states
