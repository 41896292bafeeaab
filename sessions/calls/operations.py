"""Calls with an operation id: each id runs at most once in a session, and a repeat gets the result of the first call.

The start of such a call is durable before it is sent, and its result before it is returned. If the process dies in between,
the outcome is `outcome_unknown`, for ever: it cannot be found out whether the call ran.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import orjson

from .. import errors
from ..errors import (
    InvalidArgument,
    OutcomeUnknown,
    RequestRefused,
    SessionBusy,
    SessionError,
    SessionLimit,
    StoreUnavailable,
)
from ..journal.entries import INPUT_REQUIRED, STARTED, CallEntry, status_of
from ..json_codec import JSON, dumps
from ..live.session import Binding, Operation, Session
from ..records import JournalRecord, ReceiptRecord
from ..registry import Registry
from ..services import CallContext, CallResult
from ..validation import label
from .deadline import until_closed
from .notices import with_notice, without_notice
from .request import Request

logger = logging.getLogger("statehold.sessions")

ANOTHER = "Use another operation id to run the call again, after looking at its effect."

Work = Callable[[], Awaitable[CallResult]]


class Operations:
    """Runs such calls for one registry. Between calls its only state is the receipts in the store."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.core.store
        self._node = registry.core.node.id

    async def run(
        self, session: Session, binding: Binding, request: Request, ctx: CallContext, work: Work
    ) -> CallResult:
        """Run `work`, or return the result of the earlier call with this id; wait for one that is running.

        Cancelling a caller that waits does not cancel the running call.

        Raises:
            InvalidArgument: the id is malformed, or was used for another call.
            OutcomeUnknown: the call began, and its outcome is unknown.
            SessionLimit: the session has no room for one more id.
        """
        key, digest = checked(request.operation_id), digest_of(request)
        repeated = await running(session, key, digest)
        if repeated is not None:
            return repeated
        # No await since the check: no other call of this id can have begun.
        operation = session.operations[key] = Operation(digest)
        try:
            found = await self._receipt(session.id, key)
            if found is not None:
                same(found.digest, digest)
                if found.status != INPUT_REQUIRED or not continues(ctx):
                    operation.receipt = found
                    return replayed(found)
            else:
                await self._make_room(session)
            return await self._once(session, binding, request, operation, work)
        finally:
            del session.operations[key]
            operation.ended.set()

    async def forget(self, session: Session, settled: Sequence[str]) -> None:
        """Delete the receipts of results that the caller has acknowledged, those of attempts included."""
        kept = [operation for operation in settled if session.answered.pop(operation, None) is None]
        over = [operation for operation in kept if operation not in session.operations]
        if over:
            await session.save(forget=over)
            session.receipts = None

    async def _receipt(self, session_id: str, key: str) -> ReceiptRecord | None:
        found = await self._store.receipt(session_id, key)
        if found is not None and found.status == STARTED:
            # No call of this id runs: its end is waiting to be written, or the process that ran it is gone.
            await self._store.flush()
            found = await self._store.receipt(session_id, key)
        return found

    async def _make_room(self, session: Session) -> None:
        policy = self._registry.core.policy
        if session.receipts is None:
            session.receipts = await self._store.receipts(session.id)
        count, size = session.receipts
        if count >= policy.receipts or size >= policy.receipts_bytes:
            raise SessionLimit(
                f"The session keeps the results of {count} operations, as much as it may.",
                session_id=session.id,
                recovery="Make a new session, or send the call without an operation id.",
            )

    async def _once(
        self,
        session: Session,
        binding: Binding,
        request: Request,
        operation: Operation,
        work: Work,
    ) -> CallResult:
        now = self._registry.core.clock.now
        assert request.operation_id is not None
        seq = session.next_seq()
        receipt = started(session, request.operation_id, operation.digest, seq, now())
        begun = self._entry(binding, request, receipt, None)
        try:
            await session.save(journal=[begun], receipts=[receipt])
        except (SessionBusy, StoreUnavailable):
            session.free_seq(seq)
            raise
        outcome: CallResult | BaseException = OutcomeUnknown("The call did not end.")
        try:
            outcome = await work()
            return outcome
        except BaseException as error:
            outcome = error
            raise
        finally:
            ended = request.ended_at or now()
            receipt = settled(receipt, outcome, ended, self._registry.core.policy.receipt_bytes)
            if request.sent or isinstance(outcome, CallResult):
                operation.receipt = receipt
            await self._end(
                session, self._entry(binding, request, receipt, outcome), operation, receipt
            )

    async def _end(
        self, session: Session, entry: JournalRecord, operation: Operation, receipt: ReceiptRecord
    ) -> None:
        """Make the end of a call durable. A failure is only logged, since the call ran."""
        forget = [receipt.operation_id] if operation.receipt is None else []
        try:
            await session.save(ended=[entry], receipts=[] if forget else [receipt], forget=forget)
        except SessionError as error:
            logger.error("the end of an operation was not recorded: %s", error)
        except StoreUnavailable as error:
            logger.error("the end of an operation is not recorded yet: %s", error)
            if not forget:
                self._store.append_end(entry, receipt, self._node)
        if session.receipts is not None and not forget:
            count, size = session.receipts
            session.receipts = (count + 1, size + (receipt.bytes if receipt.result else 0))

    def _entry(
        self,
        binding: Binding,
        request: Request,
        receipt: ReceiptRecord,
        outcome: CallResult | BaseException | None,
    ) -> JournalRecord:
        return CallEntry(
            session_id=receipt.session_id,
            node=self._node,
            epoch=receipt.epoch,
            seq=receipt.seq,
            service=request.service,
            tool=request.tool,
            arguments=request.arguments,
            started=receipt.started_at,
            ended=receipt.ended_at,
            generation=binding.record.generation,
            outcome=outcome,
            operation_id=request.operation_id,
            run=request.run,
            limit=self._registry.core.policy.journal_bytes,
            redactor=self._registry.core.redactor,
            spec=binding.service.tool(request.tool),
        ).record()


async def running(session: Session, key: str, digest: str) -> CallResult | None:
    """Wait for the running call of an id and return its result; None when there is none, or it was not sent."""
    while (operation := session.operations.get(key)) is not None:
        same(operation.digest, digest)
        await until_closed(session, operation.ended.wait())
        if operation.receipt is not None:
            return replayed(operation.receipt)
    return None


def checked(operation_id: str | None) -> str:
    return label("operation_id", operation_id)


def digest_of(request: Request) -> str:
    asked: list[Any] = [request.service, request.tool, dict(request.arguments)]
    try:
        text = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        # orjson refuses integers of more than 64 bits and halves of surrogate pairs.
        text = json.dumps(asked, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()


def same(known: str, asked: str) -> None:
    if known != asked:
        raise InvalidArgument(
            "This operation id was used for another call in this session.",
            recovery="Use a new operation id for each call, and the same one only to repeat it.",
        )


def continues(ctx: CallContext) -> bool:
    return ctx.input_responses is not None or ctx.request_state is not None


def started(session: Session, key: str, digest: str, seq: int, now: float) -> ReceiptRecord:
    """Return the receipt of a call that begins; `seq` is the position of its journal entry, 0 without one."""
    return ReceiptRecord.model_construct(
        session_id=session.id,
        operation_id=key,
        digest=digest,
        status=STARTED,
        seq=seq,
        epoch=session.record.epoch,
        started_at=now,
    )


def settled(
    receipt: ReceiptRecord, outcome: CallResult | BaseException, ended: float, limit: int
) -> ReceiptRecord:
    """Return a receipt completed with the outcome of its call."""
    changes: JSON = {"status": status_of(outcome), "ended_at": ended}
    if isinstance(outcome, CallResult):
        result = with_notice(outcome)
        text = dumps(result)
        size = len(text) if text.isascii() else len(text.encode(errors="replace"))
        changes |= {"bytes": size, "result": result if size <= limit else None}
    elif isinstance(outcome, SessionError):
        changes["error"] = _told(outcome)
    return receipt.model_copy(update=changes)


def _told(error: SessionError) -> JSON:
    told: JSON = {"code": error.code, "message": error.message, "recovery": error.recovery}
    if isinstance(error, RequestRefused):
        told["rpc"] = {"code": error.rpc_code, "data": error.data}
    return told


def replayed(receipt: ReceiptRecord) -> CallResult:
    """Return the result of a call that ended before.

    Raises:
        SessionError: the call's own error, or OutcomeUnknown.
    """
    if receipt.result is not None:
        return without_notice(cast("JSON", receipt.result))
    if receipt.error is not None:
        raise _again(cast("JSON", receipt.error))
    if receipt.status in (STARTED, OutcomeUnknown.code):
        message = "The server ended while this call ran, and nobody knows whether it took effect."
    elif receipt.ended_at is not None and receipt.bytes:
        message = f"The call ended ({receipt.status}), but its result of {receipt.bytes} bytes was too large to be kept."
    else:
        message = "The call was cancelled while it ran, and nobody knows whether it took effect."
    raise OutcomeUnknown(message, recovery=ANOTHER)


_RECORDED: tuple[type[SessionError], ...] = (
    *(errors.SessionClosed, errors.SessionPaused, errors.SessionFailed, errors.SessionBusy),
    *(errors.SessionLimit, errors.ServiceUnavailable, errors.ServiceNotBound),
    *(errors.CallTimedOut, errors.ConnectionLost, errors.OutcomeUnknown, errors.StateConflict),
    *(errors.StateInvalid, errors.NameTaken, errors.InvalidArgument, errors.NotAllowed),
)


def _of_code(code: str) -> type[SessionError]:
    return next((found for found in _RECORDED if found.code == code), OutcomeUnknown)


def _again(told: JSON) -> SessionError:
    rpc: JSON | None = told.get("rpc")
    if rpc is not None:
        return RequestRefused(rpc["code"], told["message"], rpc["data"])
    error = _of_code(told["code"])(told["message"], recovery=told["recovery"])
    if error.retryable:
        # It was sent, so this id is used up.
        error.retryable, error.recovery = False, ANOTHER
    return error


__all__ = [
    "ANOTHER",
    "Operations",
    "checked",
    "continues",
    "digest_of",
    "replayed",
    "running",
    "same",
    "settled",
    "started",
]
