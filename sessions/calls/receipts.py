"""Receipts of calls with an operation id: the start of a call, its outcome, and the answer to a repeat."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson

from .. import errors
from ..concurrency import LazyEvent
from ..errors import InvalidArgument, OutcomeUnknown, RequestRefused, SessionError
from ..journal.entries import STARTED, status_of
from ..json_codec import JSON, dumps
from ..records import NEVER, ReceiptRecord
from ..services import ToolResult
from ..validation import label
from .hand_over import KEPT_SECONDS, HandOver
from .notices import with_notice, without_notice
from .open_work import OpenWork

_CREATION: Final = "\1"
"""A prefix that no id of a caller can have."""

Outcome = ToolResult | BaseException

ANOTHER: Final = "Use another operation id to run the call again, after looking at its effect."


@dataclass(slots=True, eq=False)
class Operation:
    """A call with an operation id. It lives as long as the call; calls with the same id wait for `ended`."""

    scope: str
    """The id of the session, or the key of the principal, that the operation id belongs to."""
    id: str
    digest: str
    """A digest of the call; see digest_of()."""
    origin: int | str | None = None
    """The epoch or the process in which the caller chose the id, if its receipt is kept in memory."""
    is_repeat: bool = False
    """Whether the caller has sent this id before."""
    continues: bool = False
    """Whether it answers the questions of an earlier call with this id."""
    hand_over: HandOver | None = None
    """Set if the call may go on without its caller."""
    work: OpenWork | None = None
    """Set for a call that was handed over by an earlier process: its questions, and its end."""
    result: ToolResult | None = None
    """Set by the code that runs the call."""
    effective: bool = False
    """Whether the call may have had an effect although it has no result. Otherwise its id stays unused."""
    start_receipt: ReceiptRecord | None = None
    """The receipt of its start, once that is kept."""
    receipt: ReceiptRecord | None = None
    """The receipt of its outcome; None when the id stays unused."""
    started: LazyEvent = field(default_factory=LazyEvent)
    """Set when the receipt of its start is kept, or when it has ended without one."""
    ended: LazyEvent = field(default_factory=LazyEvent)

    def start(
        self,
        session_id: str,
        now: float,
        *,
        seq: int = 0,
        epoch: int = 0,
        expires_at: float | None = None,
        upstream: str | None = None,
    ) -> ReceiptRecord:
        """Return the receipt of a call that begins; `seq` is the position of its journal entry, 0 without one."""
        return ReceiptRecord.model_construct(
            session_id=session_id,
            operation_id=self.id,
            digest=self.digest,
            status=STARTED,
            seq=seq,
            epoch=epoch,
            started_at=now,
            expires_at=expires_at,
            upstream=upstream,
        )

    @property
    def is_used_up(self) -> bool:
        """Whether its id is used up: it has a result, may have had an effect, or a client has it as that of a task."""
        is_task = self.hand_over is not None and self.hand_over.is_taken
        return self.effective or self.result is not None or is_task

    @property
    def is_stored(self) -> bool:
        """Whether the store has the receipt of its start."""
        return self.start_receipt is not None and self.origin is None

    def require_same_call(self, digest: str) -> None:
        """Raises InvalidArgument when `digest` is that of another call."""
        if digest != self.digest:
            raise InvalidArgument(
                "This operation id was used for another call in this session.",
                recovery="Use a new operation id for each call, and the same one only to repeat it.",
            )


class RunningOperations:
    """The operations whose calls run now, of this process or of the one before it. Calls with the same id wait for them."""

    def __init__(self) -> None:
        self._operations: dict[tuple[str, str], Operation] = {}
        self.on_changed: list[Callable[[str, str], None]] = []
        """Called with the session and the id of a handed-over operation that asks or has ended. They must not block."""

    def get(self, scope: str, operation_id: str) -> Operation | None:
        return self._operations.get((scope, operation_id))

    def begin(self, operation: Operation) -> None:
        """Add an operation. Its repeats wait until end()."""
        self._operations[operation.scope, operation.id] = operation

    def report(self, session_id: str, operation_id: str) -> None:
        """Tell that an operation asks, or has ended."""
        for report in self.on_changed:
            report(session_id, operation_id)

    def end(self, operation: Operation) -> None:
        """Let the repeats of an operation go on; with `operation.receipt`, they get its outcome."""
        del self._operations[operation.scope, operation.id]
        operation.ended.set()
        operation.started.set()


def validate_operation_id(operation_id: str | None) -> str:
    """Return an operation id unchanged; raises InvalidArgument when it is malformed."""
    return label("operation_id", operation_id)


def creation_id(operation_id: str) -> str:
    """Return the stored id of a call that creates a session. It belongs to the owner; other ids belong to a session."""
    return _CREATION + hashlib.sha256(operation_id.encode(errors="surrogatepass")).hexdigest()


def is_creation_id(operation_id: str) -> bool:
    """Return whether a stored id is that of the call that created its session."""
    return operation_id.startswith(_CREATION)


def digest_of(service: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a digest that two calls share only if they do the same."""
    call: list[Any] = [service, tool, dict(arguments)]
    try:
        text = orjson.dumps(call, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        # orjson refuses integers of more than 64 bits and halves of surrogate pairs.
        text = json.dumps(call, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()


def close_receipt(
    receipt: ReceiptRecord, outcome: ToolResult | BaseException, ended_at: float, limit: int
) -> ReceiptRecord:
    """Return a receipt completed with the outcome of its call. Results of more than `limit` bytes are left out."""
    changes: JSON = {"status": status_of(outcome), "ended_at": ended_at}
    if receipt.expires_at is not None and receipt.expires_at < NEVER:
        changes["expires_at"] = ended_at + KEPT_SECONDS
    if receipt.upstream is not None:
        changes["upstream"] = None
    if isinstance(outcome, ToolResult):
        result = with_notice(outcome)
        text = dumps(result)
        size = len(text) if text.isascii() else len(text.encode(errors="replace"))
        changes |= {"bytes": size, "result": result if size <= limit else None}
    elif isinstance(outcome, SessionError):
        changes["error"] = _error_to_json(outcome)
    return receipt.model_copy(update=changes)


def replay(receipt: ReceiptRecord) -> ToolResult:
    """Return the recorded result of a call.

    Raises:
        SessionError: the recorded error of the call, or OutcomeUnknown.
    """
    if receipt.result is not None:
        return without_notice(cast("JSON", receipt.result))
    if receipt.error is not None:
        raise _error_from_json(cast("JSON", receipt.error))
    if receipt.status in (STARTED, OutcomeUnknown.code):
        message = "The server ended while this call ran; it may have taken effect."
    elif receipt.ended_at is not None and receipt.bytes:
        message = f"The call ended ({receipt.status}), but its result of {receipt.bytes} bytes was not kept."
    else:
        message = "The call was cancelled or failed while it ran; it may have taken effect."
    raise OutcomeUnknown(message, recovery=ANOTHER)


_RECORDED: Final[Mapping[str, type[SessionError]]] = {
    error.code: error
    for error in (
        *(errors.SessionClosed, errors.SessionPaused, errors.SessionFailed, errors.SessionBusy),
        *(errors.SessionLimit, errors.ServiceUnavailable, errors.ServiceNotBound),
        *(errors.LoginUnavailable, errors.LoginBusy, errors.ApprovalRequired),
        *(errors.CallTimedOut, errors.ConnectionLost, errors.OutcomeUnknown),
        *(errors.StateConflict, errors.StateInvalid, errors.NameTaken),
        *(errors.InvalidArgument, errors.NotAllowed),
    )
}
"""The errors that a receipt can hold, by code."""


def _error_to_json(error: SessionError) -> JSON:
    fields: JSON = {"code": error.code, "message": error.message, "recovery": error.recovery}
    if isinstance(error, RequestRefused):
        fields["rpc"] = {"code": error.rpc_code, "data": error.data}
    return fields


def _error_from_json(fields: JSON) -> SessionError:
    rpc: JSON | None = fields.get("rpc")
    if rpc is not None:
        return RequestRefused(rpc["code"], fields["message"], rpc["data"])
    error_class = _RECORDED.get(fields["code"], OutcomeUnknown)
    error = error_class(fields["message"], recovery=fields["recovery"])
    if error.retryable:
        # It was sent, so this id is used up.
        error.retryable, error.recovery = False, ANOTHER
    return error
