"""A session of another system, on its way into a document that can be imported."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2s
from pathlib import Path
from typing import Final

from ....sessions.actions.document import Document, read_document
from ....sessions.errors import InvalidArgument
from ....sessions.ids import name_of_id
from ....sessions.json_codec import JSON
from ....sessions.records import LABELS, Timeouts
from ....sessions.state.patch import size_of
from ....sessions.validation import METADATA_LIMIT, label

MAX_BYTES: Final = 64 << 20
"""The most bytes that are read of one session, and of one value of it."""
DIGEST: Final = "statehold/imported_digest"
"""Metadata key of an imported session; its value changes with the session of the other system."""
FIRST_VERSION: Final = 1
"""The version of an imported state."""
OWN_METADATA: Final = 400
"""Bytes of the metadata that an import adds."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A session that cannot be read."""

    source: str
    """Its place for people: the name of a file, or an id."""
    reason: str


@dataclass(slots=True)
class Importable:
    """A session that can become a document."""

    source: str
    origin: str
    """The metadata of its import have it; no other session has the same."""
    name: str | None
    digest: object
    """It changes with the content. A document has that of its own metadata: it never changes."""
    document: Callable[[Timeouts, float, str], Document]
    """Makes the document, with default times, the time of now and the namespace of a session without a user. Raises
    InvalidArgument if it exceeds a bound of documents, which the error names."""
    left_out: list[str] = field(default_factory=list[str])
    """The parts that the document lacks."""


Sessions = Iterator[Importable | Unreadable]


def foreign_session(
    source: str,
    system: str,
    id_: str,
    place: str,
    *,
    user: str = "",
    created_at: float | None,
    used_at: float | None,
    state: JSON,
    metadata: Mapping[str, object] | None = None,
    details: Mapping[str, object] | None = None,
    labels: Mapping[str, str | None],
    entries: Sequence[JSON] = (),
    summary: JSON | None = None,
    left_out: Sequence[str] = (),
) -> Importable:
    """Return a session of another system.

    The metadata keep its id, of any characters, its place and the details under the name of the system; its name is made of
    the id. `entries` are those of the journal, the oldest first, with the fields of a document that are not empty.
    """
    content = [state, dict(metadata or {}), dict(details or {}), dict(labels), entries, summary]
    digest, missing = _digest(content, 16), list(left_out)
    kept_labels: dict[str, str | None] = dict.fromkeys(LABELS)
    about: JSON = {"id": id_, "place": place, **(details or {})}
    for key, value in labels.items():
        try:
            kept_labels[key] = value and label(key, value)
        except InvalidArgument:
            about[key] = value
    metadata = {**(metadata or {})}
    for key, size in drop_largest([metadata, about], METADATA_LIMIT - OWN_METADATA):
        missing.append(f"{key} of its metadata ({size} bytes)")
    origin = f"{system}:{id_[:80]}:{_digest([place, id_], 8)}"

    def document(timeouts: Timeouts, now: float, namespace: str) -> Document:
        began_at = now if created_at is None else created_at
        fields: JSON = {
            "format": "statehold.session",
            "version": 1,
            "exported_at": now,
            "secrets": False,
            "session": {
                "id": origin,
                "namespace": name_of_id(user) if user else namespace,
                "name": name_of_id(id_) or None,
                "status": "paused",
                "reason": None,
                "created_at": began_at,
                "used_at": began_at if used_at is None else used_at,
                "closed_at": None,
                "timeouts": timeouts.model_dump(include={"idle", "paused", "lifetime"}),
                "metadata": {**metadata, system: about, DIGEST: digest},
                **kept_labels,
            },
            "fork": None,
            "state": {"version": FIRST_VERSION, "value": state, "json_schema": None},
            "bindings": [],
            "journal": [{**_ENTRY, "seq": seq, **each} for seq, each in enumerate(entries, 1)],
            "receipts": [],
            "summary": summary and {**summary, "through_seq": len(entries)},
        }
        text = json.dumps(fields, ensure_ascii=False)
        try:
            return read_document(text.encode())
        except UnicodeEncodeError:
            # Others write them in JSON; they become question marks.
            missing.append("halves of surrogate pairs")
            return read_document(text.encode(errors="replace"))

    return Importable(source, origin, name_of_id(id_), digest, document, missing)


def drop_largest(parts: Sequence[JSON], limit: int) -> Iterator[tuple[str, int]]:
    """Delete the largest values of objects until they take `limit` bytes; yield their keys and sizes."""
    values = [(size_of(value), part, key) for part in parts for key, value in part.items()]
    values.sort(key=lambda value: value[0])
    while values and size_of(parts) > limit:
        size, part, key = values.pop()
        del part[key]
        yield key, size


def _digest(content: object, size: int) -> str:
    text = json.dumps(content, sort_keys=True)
    return blake2s(text.encode(errors="surrogatepass"), digest_size=size).hexdigest()


def open_database(file: Path) -> sqlite3.Connection:
    """Open a database to read it.

    Raises:
        OSError, sqlite3.Error: it cannot be read.
    """
    # SQLite would wait for the writer of a pipe.
    if file.exists() and not stat.S_ISREG(file.stat().st_mode):
        raise OSError(0, "it is no regular file")
    uri = f"{file.absolute().as_uri()}?mode=ro"
    # Each page of the import may run in another thread.
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
    connection.row_factory = sqlite3.Row
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def tables_of(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the columns of each table."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = "SELECT name FROM pragma_table_info(?)"
    return {name: {row[0] for row in connection.execute(columns, [name])} for (name,) in names}


def read_json(text: str | bytes) -> object:
    """Return a JSON value.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"it has {name}, which JSON lacks")


_ENTRY: Final[JSON] = {
    **dict.fromkeys(("service", "tool", "status", "run", "role", "operation_id", "ended_at")),
    **dict.fromkeys(("request", "result", "error")),
    "generation": 0,
}
