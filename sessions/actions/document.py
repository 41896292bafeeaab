"""A session as one JSON document, to be kept elsewhere or imported into another Statehold.

The models below define its fields and their bounds, since documents are untrusted. Times are seconds since 1970 in UTC,
bytes are base64.
"""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic_core import from_json, to_json

from ..errors import InvalidArgument
from ..records import JournalKind
from ..state.patch import size_of
from ..validation import Plain
from .history import NOTE_BYTES

ENTRY_BYTES: Final = 4 * NOTE_BYTES
"""Most bytes of each part of an entry; no configuration allows that much."""

_BIG: Final = 2**62
_HUGE: Final = re.compile(rb"[0-9][eE]\+?[0-9]{3}")
"""Matches digits that may be read as a number that is not finite."""
Time = Annotated[float, Field(ge=0, le=1e11)]
Number = Annotated[int, Field(ge=0, le=_BIG)]
Text = Annotated[str, Field(max_length=256)]
Name = Annotated[str, Field(min_length=1, max_length=128)]
Word = Annotated[Plain, Field(max_length=256)]
Label = Annotated[Plain, Field(min_length=1, max_length=128)]
Base64 = Annotated[str, Field(max_length=1 << 30, pattern=r"^[A-Za-z0-9+/]*={0,2}$")]
Object = dict[str, JsonValue]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    @classmethod
    def of_record(cls, record: BaseModel, **others: Any) -> Self:
        """Return a part with the fields of a record, not validated; `others` take precedence."""
        fields = {key: getattr(record, key) for key in cls.model_fields if key not in others}
        return cls.model_construct(**fields, **others)

    def values(self) -> dict[str, Any]:
        """Return its fields by name, not copied."""
        return {key: getattr(self, key) for key in type(self).model_fields}


class TimeoutsPart(Part):
    idle: Annotated[float, Field(ge=0, le=3.2e9)]
    paused: Annotated[float, Field(ge=0, le=3.2e9)]
    lifetime: Annotated[float, Field(ge=0, le=3.2e9)]


class SessionPart(Part):
    """The session as it was. An import keeps its id only as the origin, and ignores its status."""

    id: Name
    namespace: Annotated[str, Field(max_length=128)]
    name: Name | None
    status: Text
    reason: Text | None
    created_at: Time
    used_at: Time
    closed_at: Time | None
    timeouts: TimeoutsPart
    metadata: Object
    user_id: Name | None
    agent_id: Name | None
    team_id: Name | None
    workflow_id: Name | None


class ForkPart(Part):
    parent: Name
    state: Object | None
    """The state it was forked with."""


class StatePart(Part):
    version: Number
    value: Object
    json_schema: Object | None


class SnapshotPart(Part):
    """Snapshot of a connection as its service wrote it; an encrypted one stays encrypted."""

    taken_at: Time
    data: Base64

    @classmethod
    def of(cls, data: bytes, taken_at: float) -> SnapshotPart:
        return cls(taken_at=taken_at, data=base64.b64encode(data).decode())

    def bytes(self) -> bytes:
        return base64.b64decode(self.data)

    @model_validator(mode="after")
    def _is_snapshot(self) -> SnapshotPart:
        try:
            content: object = orjson.loads(self.bytes())
        except ValueError:
            raise ValueError("is not what a service saves") from None
        parts = cast("dict[str, object]", content) if isinstance(content, dict) else {}
        blobs = parts.get("blobs")
        if parts.keys() != {"data", "blobs"} or not isinstance(blobs, dict):
            raise ValueError("is not what a service saves")
        return self


class BindingPart(Part):
    service: Name
    generation: Number
    config_hash: Word
    snapshot: SnapshotPart | None


class EntryPart(Part):
    seq: Annotated[int, Field(ge=1, le=_BIG)]
    kind: Literal["call", "transition", "message", "state", "run", "control", "compacted"]
    service: Word | None
    tool: Word | None
    status: Word | None
    run: Word | None
    role: Word | None
    operation_id: Label | None
    started_at: Time
    ended_at: Time | None
    generation: Number
    request: JsonValue
    result: JsonValue
    error: Annotated[str, Field(max_length=ENTRY_BYTES)] | None
    facts: JsonValue = None
    """Absent in documents of earlier versions."""

    @model_validator(mode="after")
    def _is_readable(self) -> EntryPart:
        for part in (self.request, self.result, self.facts):
            if size_of(part) > ENTRY_BYTES:
                raise ValueError(f"takes more than {ENTRY_BYTES} bytes")
        if self.kind == JournalKind.MESSAGE:
            message = self.request if isinstance(self.request, dict) else {}
            if not isinstance(message.get("content"), str) or not self.role:
                raise ValueError("is a message without role or content")
        elif self.kind == JournalKind.TRANSITION and not isinstance(self.request, dict):
            raise ValueError("is a transition without its cause")
        elif self.kind == JournalKind.COMPACTED:
            CountsPart.model_validate(self.request)
        return self


class CountsPart(Part):
    """The counts in a `compacted` entry, which stands for other entries."""

    model_config = ConfigDict(extra="ignore", strict=True)

    entries: Number
    calls: dict[str, dict[str, Number]]
    messages: dict[str, Number]
    transitions: Number
    runs: Number
    last_run: Text | None = None


class ReceiptPart(Part):
    operation_id: Label
    digest: Word
    status: Word
    seq: Number
    started_at: Time
    ended_at: Time | None
    bytes: Number
    result: JsonValue
    error: JsonValue


class SummaryPart(Part):
    text: Annotated[str, Field(max_length=20_000)]
    topics: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=50)]
    updated_at: Time
    through_seq: Number


class Document(Part):
    """All stored data of a session. Without `secrets` it has no snapshots and no results of operations."""

    format: Literal["statehold.session"]
    version: Literal[1]
    exported_at: Time
    secrets: bool
    session: SessionPart
    fork: ForkPart | None
    state: StatePart
    bindings: Annotated[list[BindingPart], Field(max_length=1000)]
    journal: list[EntryPart]
    receipts: list[ReceiptPart]
    summary: SummaryPart | None

    @model_validator(mode="after")
    def _is_consistent(self) -> Document:
        seqs = [entry.seq for entry in self.journal]
        if any(after <= before for before, after in pairwise(seqs)):
            raise ValueError("journal: the entries are not in order")
        for list_name, names in (
            ("bindings", [binding.service for binding in self.bindings]),
            ("receipts", [receipt.operation_id for receipt in self.receipts]),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"{list_name}: one is there twice")
        return self


def write_document(document: Document) -> bytes:
    """Return a document as JSON text in which every number is exact."""
    return json_text(document.model_dump())


def json_text(value: object) -> bytes:
    """Return a JSON value as text in which every number is exact."""
    try:
        return to_json(value)
    except ValueError:
        return json.dumps(value).encode()


def read_document(text: bytes) -> Document:
    """Read a document.

    Raises:
        InvalidArgument: the text is not a valid document. The message names the first invalid place, not its content.
    """
    try:
        content: object = from_json(text, allow_inf_nan=False)
        if _HUGE.search(text):
            json.dumps(content, allow_nan=False)
        return Document.model_validate(content)
    except ValidationError as error:
        content = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in content["loc"]) or "document"
        raise _document_error(
            f"{path}: {content['msg'].removeprefix('Value error, ').lower()}"
        ) from None
    except ValueError as error:
        raise _document_error(f"document: is not JSON that can be read ({error})") from None


def _document_error(problem: str) -> InvalidArgument:
    return InvalidArgument(
        f"{problem[:500]}.",
        recovery="Give a whole document, as session_export of this or an earlier version writes it.",
    )
