"""Importing a document as a session: everything is checked before anything is changed; the session is new and paused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import anyio
import anyio.to_thread
from pydantic_core import to_json

from ..calls.receipts import Operation
from ..core import Core
from ..errors import InvalidArgument, NameTaken, OutcomeUnknown, SessionError, StoreUnavailable
from ..journal.entries import STARTED
from ..journal.facts import redact_again
from ..journal.redaction import Redactor
from ..lifecycle import Event, Status
from ..live.directory import Directory
from ..live.quota import Quota, entries_bytes
from ..live.session import LiveSession
from ..live.snapshots import decode_snapshot, encode_snapshot
from ..policy import Policy
from ..principals.limits import EffectiveLimits
from ..principals.rates import service_refused
from ..records import (
    BindingRecord,
    BindingStatus,
    JournalKind,
    JournalRecord,
    ReceiptRecord,
    SessionRecord,
    SnapshotRecord,
    StateRecord,
    SummaryRecord,
    Timeouts,
    labels_of,
)
from ..services import SnapshotChecker
from ..state.patch import size_of
from ..transitions.create import CreationOptions, new_record, state_of, timeouts_of
from ..validation import validate_name
from .branches import BASE
from .document import BindingPart, Document, EntryPart, ReceiptPart, SnapshotPart

IMPORTED_FROM: Final = "statehold/imported_from"
"""Metadata key of an imported session; its value is the id of the exported one."""
ROW_BYTES: Final = 1000
"""Approximate bytes of a session besides its contents, and of a receipt."""
LOST: Final = "the session was imported"
EARLIER_DEFAULTS: Final = (86_400.0, 604_800.0)
"""The default times of a paused session and of its life before 0.1. Documents with them get the defaults of today."""
CHUNK: Final = 500
"""Entries that are written at once; other writes wait only a short time for so many."""


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """Destination of an import: the sessions of one registry."""

    core: Core
    directory: Directory
    quota: Quota


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The new session, and the parts of the document that it lacks, in words."""

    record: SessionRecord
    left_out: list[str]


async def import_document(
    target: ImportTarget,
    document: Document,
    owner: str,
    *,
    name: str | None = None,
    strict: bool = True,
    operation: Operation | None = None,
    report: Callable[[int, int], None] | None = None,
) -> ImportOutcome:
    """Create a session from a document: with a new id, paused, owned by `owner`. It is complete on return, or absent.

    The session keeps the receipt of `operation`. `name` replaces the name in the document. Services that are not configured
    here, a name that is taken, and timeouts that are too long are refused; without `strict` they are left out. `report`
    gets the entries of the journal that are written, and those that there are.

    Raises:
        InvalidArgument, StateInvalid, NameTaken, SessionLimit: nothing was created.
    """
    left_out: list[str] = []
    limits = target.core.limits.of(owner)
    bindings = await anyio.to_thread.run_sync(
        partial(_bindings, target, document, limits, left_out, strict=strict)
    )
    record = _record(target, document, owner, left_out, strict=strict)
    if name is not None:
        _rename(target.core.policy, record, validate_name(name, "name"))
    record.services = [binding.service for binding in bindings]
    first_state = await state_of(
        record.id,
        record.owner,
        document.state.value,
        document.state.json_schema,
        target.core.policy.state_bytes,
    )
    state = first_state.model_copy(update={"version": document.state.version})
    _check_receipts(target.core.policy, document)
    journal = await anyio.to_thread.run_sync(_journal, target.core.redactor, document, record.id)
    try:
        await _write_session(target, document, record, state, bindings, journal, operation, report)
    except NameTaken:
        if strict or name is not None:
            raise
        left_out.append(f"the name {record.name!r:.150}, which another session has")
        _rename(target.core.policy, record, None)
        await _write_session(target, document, record, state, bindings, journal, operation, report)
    return ImportOutcome(record, left_out)


def _record(
    target: ImportTarget, document: Document, owner: str, left_out: list[str], *, strict: bool
) -> SessionRecord:
    about, times = document.session, document.session.timeouts
    by_default = (times.paused, times.lifetime) == EARLIER_DEFAULTS
    options = CreationOptions(
        name=about.name,
        namespace=about.namespace,
        metadata=about.metadata,
        labels=labels_of(about),
        idle=times.idle,
        paused=None if by_default else times.paused,
        lifetime=None if by_default else times.lifetime,
    )
    timeouts = _timeouts(target.core.policy, options, left_out, strict=strict)
    now = target.core.clock.now()
    record = new_record(
        options,
        target.core.limits.of(owner).shorten(timeouts),
        session_id=target.core.new_id(),
        owner=owner,
        node=target.core.node.id,
        now=now,
    )
    # The lifetime begins now: one that has passed elsewhere would close the session at once.
    record.created_at, record.used_at = min(about.created_at, now), min(about.used_at, now)
    record.metadata = {**record.metadata, IMPORTED_FROM: about.id}
    record.parent = None if document.fork is None else document.fork.parent
    return record


def _rename(policy: Policy, record: SessionRecord, name: str | None) -> None:
    record.timeouts = policy.renamed(record.timeouts, before=record.name, after=name)
    record.name = name


def _timeouts(
    policy: Policy, options: CreationOptions, left_out: list[str], *, strict: bool
) -> Timeouts:
    try:
        return timeouts_of(policy, options)
    except InvalidArgument as error:
        if strict:
            raise
        left_out.append(f"its times: {error.message}")
        return timeouts_of(policy, CreationOptions())


def _bindings(
    target: ImportTarget,
    document: Document,
    limits: EffectiveLimits,
    left_out: list[str],
    *,
    strict: bool,
) -> list[BindingPart]:
    bindings: list[BindingPart] = []
    for number, binding in enumerate(document.bindings):
        if not limits.allows_service(binding.service):
            refused = service_refused(limits, binding.service)
            if strict:
                raise refused
            left_out.append(f"the service {binding.service!r:.150}: {refused.message}")
            continue
        if binding.service in target.core.services:
            bindings.append(_with_checked_snapshot(target, number, binding, left_out))
            continue
        if strict:
            configured = ", ".join(sorted(target.core.services)) or "none"
            raise InvalidArgument(
                f"bindings.{number}.service: there is no service {binding.service!r:.100}; configured: {configured}.",
                recovery="Import it where the service is, or with strict=false to leave the service out.",
            )
        left_out.append(f"the service {binding.service!r:.150}, which is not configured here")
    return bindings


def _with_checked_snapshot(
    target: ImportTarget, number: int, binding: BindingPart, left_out: list[str]
) -> BindingPart:
    """Return a binding whose snapshot holds only what its service would have saved."""
    service = target.core.services[binding.service]
    if binding.snapshot is None or not isinstance(service, SnapshotChecker):
        return binding
    path = f"bindings.{number}.snapshot"
    try:
        imported = decode_snapshot(binding.snapshot.bytes())
        accepted = service.check_snapshot(imported)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error.message}") from None
    except (ValueError, TypeError, AttributeError):
        raise InvalidArgument(f"{path}: is not what a service saves.") from None
    dropped_names = (imported.data.keys() - accepted.data) | (
        imported.blobs.keys() - accepted.blobs
    )
    if dropped_names:
        names = ", ".join(map(repr, sorted(dropped_names)))
        left_out.append(f"values of {binding.service} that its recipe does not keep: {names:.150}")
    snapshot = SnapshotPart.of(encode_snapshot(accepted), binding.snapshot.taken_at)
    return binding.model_copy(update={"snapshot": snapshot})


def _check_receipts(policy: Policy, document: Document) -> None:
    """Refuse receipts that exceed the limits or could not be replayed."""
    if len(document.receipts) > policy.receipts:
        raise InvalidArgument(f"receipts: more than {policy.receipts} are not allowed.")
    room = policy.receipts_bytes
    for number, receipt in enumerate(document.receipts):
        size = 0 if receipt.result is None else size_of(receipt.result)
        room -= size
        if size > policy.receipt_bytes or room < 0:
            raise InvalidArgument(f"receipts.{number}.result: takes too many bytes.")
        if not _can_be_replayed(receipt):
            raise InvalidArgument(f"receipts.{number}: is not what became of a call.")


def _can_be_replayed(receipt: ReceiptPart) -> bool:
    result, error = receipt.result, receipt.error
    if not isinstance(result, dict | None) or not isinstance(error, dict | None):
        return False
    texts = [] if error is None else [error.get(key) for key in ("code", "message", "recovery")]
    rpc = None if error is None else error.get("rpc")
    rpc_is_valid = rpc is None or (isinstance(rpc, dict) and rpc.keys() == {"code", "data"})
    return rpc_is_valid and all(isinstance(text, str) for text in texts)


def _journal(redactor: Redactor, document: Document, session_id: str) -> list[JournalRecord]:
    return [_entry(redactor, entry, session_id) for entry in document.journal]


def _entry(redactor: Redactor, entry: EntryPart, session_id: str) -> JournalRecord:
    values = entry.values()
    values["kind"] = JournalKind(entry.kind)
    # Redact again: the rules of the exporting server may differ, or the document was changed since.
    if values["kind"] is JournalKind.MESSAGE:
        content = cast("dict[str, str]", entry.request)["content"]
        values["request"] = {"content": redactor.prose(content)}
    elif values["kind"] is not JournalKind.COMPACTED:
        values["request"] = redactor.value(entry.request)
        values["result"] = redactor.value(entry.result)
        values["facts"] = redact_again(entry.facts, redactor)
    if entry.error is not None:
        values["error"] = redactor.text(entry.error)
    if entry.status == STARTED:
        values["status"] = OutcomeUnknown.code
    return JournalRecord.model_construct(session_id=session_id, epoch=1, **values)


async def _write_session(
    target: ImportTarget,
    document: Document,
    record: SessionRecord,
    state: StateRecord,
    bindings: list[BindingPart],
    journal: list[JournalRecord],
    operation: Operation | None,
    report: Callable[[int, int], None] | None,
) -> None:
    """Write the session in parts while it is `creating` and no caller can use it; the last part releases it."""
    session = LiveSession(
        record,
        state,
        store=target.core.store,
        node=target.core.node.id,
        clock=target.core.clock,
        last_seq=document.journal[-1].seq if document.journal else 0,
        redactor=target.core.redactor,
    )
    receipts = [_receipt(receipt, session.id) for receipt in document.receipts]
    snapshots = _snapshots(target, session, document, bindings)
    growth = ROW_BYTES + size_of(state.value) + size_of(record.metadata) + entries_bytes(journal)
    growth += sum(ROW_BYTES + size_of(receipt.result) for receipt in receipts)
    growth += sum(len(snapshot.data) for snapshot in snapshots)
    target.quota.admit(record.owner, growth)
    with target.directory.reserve(record.id), anyio.CancelScope(shield=True):
        records = [_binding(target, record.id, binding) for binding in bindings]
        limits = target.core.limits.of(record.owner)
        receipt = operation and operation.start(record.id, record.created_at)
        await target.core.store.create(
            record,
            state,
            records,
            per_owner=limits.sessions,
            limit_name=limits.name("sessions"),
            receipt=receipt,
        )
        if operation is not None:
            operation.start_receipt = receipt
        try:
            for start in range(0, len(journal), CHUNK):
                await session.save(journal=journal[start : start + CHUNK])
                if report is not None:
                    report(min(start + CHUNK, len(journal)), len(journal))
            await _release_session(session, document, snapshots, receipts)
        except BaseException:
            target.quota.admit(record.owner, -growth)
            await _delete_partial(target, session)
            raise


def _binding(target: ImportTarget, session_id: str, binding: BindingPart) -> BindingRecord:
    return BindingRecord(
        session_id=session_id,
        service=binding.service,
        status=BindingStatus.LOST if binding.generation else BindingStatus.UNOPENED,
        generation=binding.generation,
        told_generation=binding.generation,
        config_hash=binding.config_hash,
        last_error=LOST if binding.generation else None,
        since=target.core.clock.now(),
    )


async def _release_session(
    session: LiveSession,
    document: Document,
    snapshots: list[SnapshotRecord],
    receipts: list[ReceiptRecord],
) -> None:
    cause = cause_of_import(document.session.id)
    session.apply(Event.OPENED, cause=cause)
    session.apply(Event.PAUSE_REQUESTED, cause=cause)
    summary = document.summary
    await session.save(
        snapshots=snapshots,
        receipts=receipts,
        summary=None
        if summary is None
        else SummaryRecord(session_id=session.id, **summary.model_dump()),
        status=Status.PAUSED,
        status_at=session.record.status_at,
        due_at=session.deadline(),
        node=None,
    )


def _snapshots(
    target: ImportTarget, session: LiveSession, document: Document, bindings: list[BindingPart]
) -> list[SnapshotRecord]:
    now = target.core.clock.now()
    contents = {
        binding.service: (binding.snapshot.bytes(), binding.snapshot.taken_at)
        for binding in bindings
        if binding.snapshot is not None
    }
    if document.fork is not None and document.fork.state is not None:
        contents[BASE] = (to_json(document.fork.state), now)
    return [
        SnapshotRecord(
            session_id=session.id,
            service=service,
            seq=int(now * 1000),
            taken_at=taken_at,
            epoch=1,
            data=data,
        )
        for service, (data, taken_at) in contents.items()
    ]


def _receipt(receipt: ReceiptPart, session_id: str) -> ReceiptRecord:
    values = receipt.values()
    if receipt.status == STARTED:
        values["status"] = OutcomeUnknown.code
    return ReceiptRecord.model_construct(session_id=session_id, epoch=1, **values)


def cause_of_import(origin: str) -> str:
    """Return the cause of the transitions of an import in the journal."""
    return f"imported from {origin}"


async def _delete_partial(target: ImportTarget, session: LiveSession) -> None:
    """Delete a session that could not be written completely. If that fails, the next start closes it."""
    try:
        now = target.core.clock.now()
        await session.save(
            status=Status.CLOSED, reason="import_failed", closed_at=now, due_at=now, node=None
        )
        await target.core.store.purge(session.id)
    except (SessionError, StoreUnavailable):
        return
