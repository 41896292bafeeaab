"""Calls that a caller may send again because the answer was lost: each id runs at most once, without a stored receipt.

The caller names the epoch in which it chose the id. The epoch of a session rises whenever a process takes the session over,
so an id of the current epoch that is not remembered here has not run. The outcome of an id of an earlier epoch is unknown:
the process that knew it is gone. Ids that must survive the process are those of operations.py.

A caller acknowledges the results it has. Some callers never do: they end, or give up. When a session has no room for more,
outcomes older than REMEMBERED seconds are forgotten. For REMEMBERED seconds after that, a repeat of an id that is not
remembered gets `outcome_unknown`. A caller must not repeat a call later than that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from ..clock import Clock
from ..errors import OutcomeUnknown, SessionLimit
from ..journal.entries import INPUT_REQUIRED
from ..live.session import Operation, Session
from ..policy import Policy
from ..records import ReceiptRecord
from ..services import CallContext, CallResult
from .operations import (
    ANOTHER,
    checked,
    continues,
    digest_of,
    replayed,
    running,
    same,
    settled,
    started,
)
from .request import Request

RESULTS_BYTES: Final = 4 << 20
"""Most bytes of the results remembered for one session. Beyond it, only the ids of the oldest are remembered."""

REMEMBERED: Final = 900.0
"""Seconds after the end of a call in which its outcome is never forgotten; clients give up long before."""

Work = Callable[[], Awaitable[CallResult]]


class Attempts:
    """Runs such calls for one registry. The outcomes live in the session, as long as this process owns it."""

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock

    async def run(
        self, session: Session, request: Request, ctx: CallContext, work: Work
    ) -> CallResult:
        """Run `work`, or return the result of the earlier call with this id; wait for one that is running.

        Raises:
            InvalidArgument: the id is malformed, or was used for another call.
            OutcomeUnknown: the call may have run in an earlier epoch, or its outcome or result is not remembered.
            SessionLimit: too many results are not acknowledged, and all are too new to be forgotten.
        """
        key, digest = checked(request.operation_id), digest_of(request)
        repeated = await running(session, key, digest)
        if repeated is not None:
            return repeated
        answered = session.answered
        found = answered.get(key)
        if found is not None:
            same(found.digest, digest)
            if found.status != INPUT_REQUIRED or not continues(ctx):
                return replayed(found)
        elif request.repeated and request.epoch != session.record.epoch:
            message = "The session changed hands since the call was sent, and nobody knows whether it took effect."
            raise OutcomeUnknown(message, recovery=ANOTHER)
        elif request.repeated and self._clock.now() < session.unsure_until:
            message = "The call may have been run so long ago that its result is not remembered."
            raise OutcomeUnknown(message, recovery=ANOTHER)
        else:
            self._make_room(session)
        return await self._once(session, request, key, digest, work)

    def _make_room(self, session: Session) -> None:
        answered = session.answered
        if len(answered) < self._policy.receipts:
            return
        now = self._clock.now()
        # Forget all that are old enough, not only one: so this is rare, and so are repeats refused until `unsure_until`.
        for key, receipt in list(answered.items()):
            if (receipt.ended_at or 0.0) > now - REMEMBERED:
                break
            del answered[key]
            session.unsure_until = now + REMEMBERED
        if len(answered) >= self._policy.receipts:
            raise SessionLimit(
                f"The results of {len(answered)} operations wait for their caller to have them.",
                session_id=session.id,
                recovery='Say which results you have in _meta["statehold/settled"].',
            )

    async def _once(
        self, session: Session, request: Request, key: str, digest: str, work: Work
    ) -> CallResult:
        # No await since the check: no other call of this id can have begun.
        operation = session.operations[key] = Operation(digest)
        begun = started(session, key, digest, 0, self._clock.now())
        outcome: CallResult | BaseException = OutcomeUnknown("The call did not end.")
        try:
            outcome = await work()
            return outcome
        except BaseException as error:
            outcome = error
            raise
        finally:
            if request.sent or isinstance(outcome, CallResult):
                now, limit = self._clock.now(), min(self._policy.receipt_bytes, RESULTS_BYTES)
                operation.receipt = settled(begun, outcome, now, limit)
                _remember(session, operation.receipt)
            del session.operations[key]
            operation.ended.set()


def _remember(session: Session, answer: ReceiptRecord) -> None:
    answered = session.answered
    # Keep the order in which the calls ended; a continued call moves to the end.
    answered.pop(answer.operation_id, None)
    answered[answer.operation_id] = answer
    if answer.result is not None:
        session.answered_bytes += answer.bytes
    if session.answered_bytes <= RESULTS_BYTES:
        return
    size = sum(receipt.bytes for receipt in answered.values() if receipt.result is not None)
    for key, receipt in answered.items():
        if size <= RESULTS_BYTES:
            break
        if receipt.result is not None:
            size -= receipt.bytes
            answered[key] = receipt.model_copy(update={"result": None})
    session.answered_bytes = size


__all__ = ["Attempts"]
