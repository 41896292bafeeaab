"""A session of another system, on its way into a document that can be imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Any, Final

from .....sessions.actions.document import Document, read_document
from .....sessions.errors import InvalidArgument
from .....sessions.json_codec import JSON
from .....sessions.records import LABELS, Timeouts
from .....sessions.validation import LENGTH

LARGEST: Final = 64 << 20
"""The most bytes that are read of one session, and of one value of it."""
DIGEST: Final = "statehold/imported_digest"
"""Metadata key of an imported session; its value changes with the session of the other system."""


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
    origin: str
    """The system and the id there; an import keeps it in the metadata."""
    name: str
    namespace: str = ""
    state: JSON = field(default_factory=dict[str, Any])
    metadata: JSON = field(default_factory=dict[str, Any])
    labels: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    entries: list[JSON] = field(default_factory=list[JSON])
    """Entries of the journal, the oldest first, with the fields of a document that are not empty."""
    summary: JSON | None = None
    left_out: list[str] = field(default_factory=list[str])

    @property
    def digest(self) -> str:
        content = [self.state, self.metadata, dict(self.labels), self.entries, self.summary]
        text = json.dumps(content, sort_keys=True)
        return blake2s(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()

    def document(self, timeouts: Timeouts, now: float) -> Document:
        """Return it as a document.

        Raises:
            InvalidArgument: it exceeds a bound of a document, which the error names.
        """
        if len(self.origin) > LENGTH:
            system, _, id_ = self.origin.partition(":")
            raise InvalidArgument(
                f"its id has {len(id_)} characters; an import takes at most {LENGTH - len(system) - 1}"
            )
        journal = [{**_ENTRY, "seq": seq, **entry} for seq, entry in enumerate(self.entries, 1)]
        summary = self.summary and {**self.summary, "through_seq": len(journal)}
        fields: JSON = {
            "format": "statehold.session",
            "version": 1,
            "exported_at": now,
            "secrets": False,
            "session": {
                "id": self.origin,
                "namespace": self.namespace,
                "name": self.name,
                "status": "paused",
                "reason": None,
                "created_at": now,
                "used_at": now,
                "closed_at": None,
                "timeouts": timeouts.model_dump(include={"idle", "paused", "lifetime"}),
                "metadata": {**self.metadata, DIGEST: self.digest},
                **{label: self.labels.get(label) for label in LABELS},
            },
            "fork": None,
            "state": {"version": 1, "value": self.state, "json_schema": None},
            "bindings": [],
            "journal": journal,
            "receipts": [],
            "summary": summary,
        }
        # Halves of surrogate pairs, which others write in JSON, become question marks.
        text = json.dumps(fields, ensure_ascii=False)
        return read_document(text.encode(errors="replace"))


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

Sessions = Iterator[ForeignSession | Unreadable]

__all__ = ["DIGEST", "LARGEST", "ForeignSession", "Sessions", "Unreadable", "read_json"]
