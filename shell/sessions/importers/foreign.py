"""A session of another system, on its way into a document that can be imported."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2s
from pathlib import Path
from typing import Any, Final, Protocol

from ....sessions.actions.document import Document, read_document
from ....sessions.errors import InvalidArgument
from ....sessions.ids import name_of_id
from ....sessions.json_codec import JSON
from ....sessions.records import LABELS, Timeouts
from ....sessions.state.patch import size_of
from ....sessions.transitions.create import METADATA_LIMIT
from ....sessions.validation import label

LARGEST: Final = 64 << 20
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
class ForeignSession:
    """All that is imported of one session."""

    source: str
    system: str
    id: str
    """Its id there, of any characters; the metadata have it, and its name is made of it."""
    place: str
    """The file that has it; in a database also the table."""
    user: str = ""
    """The user whose namespace has it."""
    created_at: float | None = None
    used_at: float | None = None
    state: JSON = field(default_factory=dict[str, Any])
    metadata: JSON = field(default_factory=dict[str, Any])
    details: JSON = field(default_factory=dict[str, Any])
    """Further values of the other system; the metadata have them under its name."""
    labels: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    entries: list[JSON] = field(default_factory=list[JSON])
    """Entries of the journal, the oldest first, with the fields of a document that are not empty."""
    summary: JSON | None = None
    left_out: list[str] = field(default_factory=list[str])

    @property
    def origin(self) -> str:
        """The system, the id and the place of it; an import keeps it in the metadata."""
        return f"{self.system}:{self.id[:80]}:{_digest([self.place, self.id], 8)}"

    @property
    def name(self) -> str:
        return name_of_id(self.id)

    @property
    def digest(self) -> str:
        content = [self.state, self.metadata, self.details, dict(self.labels)]
        return _digest([*content, self.entries, self.summary], 16)

    def document(self, timeouts: Timeouts, now: float, namespace: str) -> Document:
        """Return it as a document; `namespace` is that of a session without a user. Adds to `left_out`.

        Raises:
            InvalidArgument: it exceeds a bound of a document, which the error names.
        """
        journal = [{**_ENTRY, "seq": seq, **entry} for seq, entry in enumerate(self.entries, 1)]
        summary = self.summary and {**self.summary, "through_seq": len(journal)}
        created_at = now if self.created_at is None else self.created_at
        labels, metadata = self._labels_and_metadata()
        fields: JSON = {
            "format": "statehold.session",
            "version": 1,
            "exported_at": now,
            "secrets": False,
            "session": {
                "id": self.origin,
                "namespace": name_of_id(self.user) if self.user else namespace,
                "name": self.name or None,
                "status": "paused",
                "reason": None,
                "created_at": created_at,
                "used_at": created_at if self.used_at is None else self.used_at,
                "closed_at": None,
                "timeouts": timeouts.model_dump(include={"idle", "paused", "lifetime"}),
                "metadata": metadata,
                **labels,
            },
            "fork": None,
            "state": {"version": FIRST_VERSION, "value": self.state, "json_schema": None},
            "bindings": [],
            "journal": journal,
            "receipts": [],
            "summary": summary,
        }
        # Halves of surrogate pairs, which others write in JSON, become question marks.
        text = json.dumps(fields, ensure_ascii=False)
        return read_document(text.encode(errors="replace"))

    def _labels_and_metadata(self) -> tuple[dict[str, str | None], JSON]:
        """Return what a session may have of them. The metadata lack the largest parts where they are too large."""
        labels: dict[str, str | None] = dict.fromkeys(LABELS)
        details: JSON = {"id": self.id, "place": self.place, **self.details}
        for key, value in self.labels.items():
            try:
                labels[key] = value and label(key, value)
            except InvalidArgument:
                details[key] = value
        metadata = {**self.metadata}
        parts = [(size_of(value), metadata, key) for key, value in self.metadata.items()]
        parts += [(size_of(value), details, key) for key, value in self.details.items()]
        parts.sort(key=lambda part: part[0])
        while parts and size_of([metadata, details]) > METADATA_LIMIT - OWN_METADATA:
            size, holder, key = parts.pop()
            del holder[key]
            self.left_out.append(f"{key} of its metadata ({size} bytes)")
        return labels, {**metadata, self.system: details, DIGEST: self.digest}


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
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
    connection.row_factory = sqlite3.Row
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def tables_of(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the columns of each table."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: {
            row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [name])
        }
        for (name,) in names
    }


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
    "service": None,
    "tool": None,
    "status": None,
    "run": None,
    "role": None,
    "operation_id": None,
    "ended_at": None,
    "generation": 0,
    "request": None,
    "result": None,
    "error": None,
}


class ImportableSession(Protocol):
    """A session that can become a document."""

    source: str
    left_out: list[str]

    @property
    def origin(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def digest(self) -> object: ...
    def document(self, timeouts: Timeouts, now: float, namespace: str) -> Document: ...


Sessions = Iterator[ForeignSession | Unreadable] | Iterator[ImportableSession | Unreadable]
