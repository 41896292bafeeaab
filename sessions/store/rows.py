"""Records as rows of plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ..journal.entries import OVERHEAD, RUNNING, STARTED, CallEntry
from ..json_codec import JSON, dumps, loads
from ..records import (
    BindingRecord,
    ControlLease,
    CredentialRecord,
    JournalRecord,
    NodeRecord,
    ReceiptRecord,
    Record,
    SessionRecord,
    ShareRecord,
    SnapshotRecord,
    StateRecord,
    SummaryRecord,
    Timeouts,
)
from . import schema
from .base import Write
from .dialect.values import MARK

Row = dict[str, Any]


def _optional(value: object) -> str | None:
    return None if value is None else dumps(value)


def _storable(text: str | None) -> str | None:
    """Return foreign text as it may be stored: without NUL, which PostgreSQL cannot keep, and the mark of sealed texts."""
    return text if text is None else text.replace("\0", "\ufffd").replace(MARK[0], "\ufffd")


def _parse(text: str | None) -> Any:
    return None if text is None else loads(text)


_TIMEOUTS = {"idle": "idle_seconds", "paused": "paused_seconds", "lifetime": "lifetime_seconds"}
_NO_CONTROL = ControlLease()
_SETTABLE = frozenset(SessionRecord.model_fields) - {"id", "epoch"}


def _known(record: type[Record], stored: str | None) -> JSON:
    """Return the members of a stored object that are fields of a record. A later version may have stored others."""
    members: JSON = loads(stored or "{}")
    return {key: value for key, value in members.items() if key in record.model_fields}


def session_columns(values: Mapping[str, Any]) -> Row:
    """Turn fields of a SessionRecord into columns.

    Raises:
        ValueError: when there is no such field, or only a claim may change it.
    """
    row: Row = {}
    for key, value in values.items():
        if key not in _SETTABLE:
            raise ValueError(f"a write cannot set {key!r} of a session")
        if key == "timeouts":
            times = value if isinstance(value, Timeouts) else Timeouts.model_validate(value)
            row.update({column: getattr(times, name) for name, column in _TIMEOUTS.items()})
        elif key in ("metadata", "services"):
            row[key] = dumps(value)
        elif key == "reason":
            row[key] = _storable(value)
        elif key == "control":
            row[key] = None if value == _NO_CONTROL else _storable(value.model_dump_json())
        else:
            row[key] = str(value) if key == "status" else value
    return row


def session_row(record: SessionRecord) -> Row:
    fields = {key: getattr(record, key) for key in _SETTABLE}
    return {"id": record.id, "epoch": record.epoch, **session_columns(fields)}


def session_record(row: Mapping[str, Any]) -> SessionRecord:
    values = dict(row)
    values["timeouts"] = {name: values.pop(column) for name, column in _TIMEOUTS.items()}
    values["metadata"] = loads(values["metadata"])
    values["services"] = loads(values["services"])
    values["control"] = _known(ControlLease, values["control"])
    return SessionRecord.model_validate(values)


def node_row(record: NodeRecord) -> Row:
    return {**record.model_dump(mode="json"), "beat": 0, "lease_ends_at": None}


def node_record(row: Mapping[str, Any]) -> NodeRecord:
    return NodeRecord.model_validate({key: row[key] for key in NodeRecord.model_fields})


def binding_row(record: BindingRecord) -> Row:
    status, problem = str(record.status), _storable(record.last_error)
    return {**record.__dict__, "status": status, "last_error": problem}


def binding_record(row: Mapping[str, Any]) -> BindingRecord:
    return BindingRecord.model_validate(dict(row))


def state_row(record: StateRecord) -> Row:
    return {
        "session_id": record.session_id,
        "version": record.version,
        "value": dumps(record.value),
        "json_schema": _optional(record.json_schema),
    }


def state_record(row: Mapping[str, Any]) -> StateRecord:
    schema_ = _parse(row["json_schema"])
    return StateRecord.model_validate({**row, "value": loads(row["value"]), "json_schema": schema_})


def snapshot_row(record: SnapshotRecord) -> Row:
    return dict(record.__dict__)


def snapshot_record(row: Mapping[str, Any]) -> SnapshotRecord:
    return SnapshotRecord.model_validate(dict(row))


_JOURNAL = tuple(column.name for column in schema.journal.c)


def journal_row(record: JournalRecord) -> Row:
    row = dict(record.__dict__)
    for key in ("request", "result", "facts"):
        row[key] = _optional(row[key])
    return _with_size(row)


def _with_size(row: Row) -> Row:
    """Finish the row of an entry, whose request, result and facts are JSON."""
    row["kind"] = str(row["kind"])
    size, error = OVERHEAD, row["error"]
    for text in (row["request"], row["result"], row["facts"], error):
        if text is not None:
            size += len(text) if text.isascii() else len(text.encode(errors="replace"))
    row["error"] = None if error is None else _storable(error)
    # A started call, or run, is counted when it ends.
    row["bytes"] = 0 if row["status"] in (STARTED, RUNNING) else size
    return row


def journal_record(row: Mapping[str, Any]) -> JournalRecord:
    values = {**row, **{key: _parse(row[key]) for key in ("request", "result", "facts")}}
    del values["bytes"]
    return JournalRecord.model_validate(values)


def receipt_row(record: ReceiptRecord) -> Row:
    row = dict(record.__dict__)
    row["result"], row["error"] = _optional(record.result), _optional(record.error)
    row["upstream"] = _storable(record.upstream)
    return row


def receipt_record(row: Mapping[str, Any]) -> ReceiptRecord:
    json_columns = {"result": _parse(row["result"]), "error": _parse(row["error"])}
    return ReceiptRecord.model_construct(**{**row, **json_columns})


def summary_row(record: SummaryRecord) -> Row:
    return {**record.__dict__, "text": _storable(record.text), "topics": dumps(record.topics)}


def summary_record(row: Mapping[str, Any]) -> SummaryRecord:
    return SummaryRecord.model_validate({**row, "topics": loads(row["topics"])})


def credential_row(record: CredentialRecord) -> Row:
    texts = {"name": _storable(record.name), "created_by": _storable(record.created_by)}
    row: Row = {**record.__dict__, "kind": record.kind.value, **texts}
    claims = {"role": row.pop("role"), "groups": list(row.pop("groups"))}
    return {**row, "claims": dumps(claims)}


def credential_record(row: Mapping[str, Any]) -> CredentialRecord:
    values = dict(row)
    claims = _known(CredentialRecord, values.pop("claims"))
    return CredentialRecord.model_validate({**values, **claims})


def share_row(record: ShareRecord) -> Row:
    grantee = record.grantee
    return {
        **record.__dict__,
        "grantee": grantee.digest,
        "kind": grantee.kind.value,
        "issuer": grantee.issuer,
        "name": grantee.name,
        "rights": record.rights.value,
    }


def share_record(row: Mapping[str, Any]) -> ShareRecord:
    values = dict(row)
    values["grantee"] = {key: values.pop(key) for key in ("kind", "issuer", "name")}
    return ShareRecord.model_validate(values)


@dataclass(slots=True)
class Change:
    """A Write as rows. It is built by the caller, so that an invalid value fails there, not in a batch."""

    session_id: str
    node: str | None
    epoch: int
    session: Row = field(default_factory=dict[str, Any])
    bindings: Sequence[Row] = ()
    unbind: Sequence[str] = ()
    state: Row | None = None
    snapshots: Sequence[Row] = ()
    journal: Sequence[Row] = ()
    ended_entries: Sequence[Row] = ()
    receipts: Sequence[Row] = ()
    forget: Sequence[str] = ()
    summary: Row | None = None
    at: float = 0.0


@dataclass(slots=True)
class JournalAppend:
    """A journal entry as a row."""

    session_id: str
    node: str
    epoch: int
    row: Row


def to_journal_append(entry: CallEntry) -> JournalAppend:
    """Turn the entry of a call into a row."""
    return JournalAppend(entry.session_id, entry.node, entry.epoch, _with_size(entry.values()))


def to_change(write: Write) -> Change:
    """Turn a write into rows.

    Raises:
        ValueError: when it names another session's rows, or something that is not JSON.
    """
    single = [part for part in (write.state, write.summary) if part is not None]
    entries = [*write.journal, *write.ended_entries, *write.receipts]
    parts = [*write.bindings, *write.snapshots, *entries, *single]
    if any(part.session_id != write.session_id for part in parts):
        raise ValueError("a write changes one session only")
    node = write.session.get("node", write.node)
    if node is not None and node != write.node:
        raise ValueError("a write can release a session, not give it to another node")
    return Change(
        session_id=write.session_id,
        node=write.node,
        epoch=write.epoch,
        session=session_columns(write.session),
        bindings=[binding_row(item) for item in write.bindings],
        unbind=tuple(write.unbind),
        state=None if write.state is None else state_row(write.state),
        snapshots=[snapshot_row(item) for item in write.snapshots],
        journal=[journal_row(item) for item in write.journal],
        ended_entries=[journal_row(item) for item in write.ended_entries],
        receipts=[receipt_row(item) for item in write.receipts],
        forget=tuple(write.forget),
        summary=None if write.summary is None else summary_row(write.summary),
        at=write.at,
    )


def columns_of(row: Any) -> Mapping[str, Any]:
    """Return the columns of a result row by name."""
    return cast("Mapping[str, Any]", row._mapping)
