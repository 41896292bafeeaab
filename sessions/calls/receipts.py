"""Calls to Statehold's own tools with an operation id: each id runs at most once.

As with calls of services (operations.py), the start is durable before anything is changed, and the result before it is
returned. These calls may pause, close or create the session that keeps the receipt, so a receipt does not depend on the
owner of the session: the first call claims it, and only that call ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from ..errors import (
    OutcomeUnknown,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionFailed,
    SessionLimit,
    SessionNotFound,
    StateConflict,
    StoreUnavailable,
)
from ..journal.entries import STARTED
from ..lifecycle import Status
from ..live.session import Operation
from ..records import Principal, ReceiptRecord
from ..registry import Registry
from ..services import CallResult
from .claims import Claim, Repeated, making
from .operations import checked, digest_of, replayed, same, settled
from .request import Request

logger = logging.getLogger("statehold.sessions")

Work = Callable[[], Awaitable[CallResult]]

_NOT_THERE = (SessionNotFound, SessionExpired, SessionClosed, SessionFailed)


class Receipts:
    """Runs such calls for one registry. It holds the running calls; everything else is in the store's receipts."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.core.store
        self._node = registry.core.node.id
        self._running: dict[tuple[str, str], Operation] = {}

    async def run(self, request: Request, work: Work) -> CallResult:
        """Run `work` on the session with the id `request.session`, or return the result of the earlier call with this id.

        A call of this id that is running is waited for; it runs to its end even if its caller is gone. A call that cannot
        run now, or needs another session, leaves the id unused.

        Raises:
            InvalidArgument: the id is malformed, or was used for another call.
            OutcomeUnknown: the call began, and its outcome is unknown.
            SessionLimit: the session has no room for one more id.
        """
        claim = Claim(checked(request.operation_id), digest_of(request))
        claimed = partial(self._claimed, request, claim, work)
        return await self._counted(request, claim, claimed)

    async def make(
        self, request: Request, work: Callable[[Claim], Awaitable[CallResult]]
    ) -> CallResult:
        """Run `work`, which creates a session that takes the claim; see run(). Here the ids belong to the principal.

        Raises:
            InvalidArgument, OutcomeUnknown: see run().
        """
        claim = Claim(making(checked(request.operation_id)), digest_of(request))
        return await self._alone(
            request.principal, request.principal.key, claim, partial(work, claim)
        )

    async def _alone(
        self, principal: Principal, holder: str, claim: Claim, work: Work
    ) -> CallResult:
        place = holder, claim.operation_id
        while (running := self._running.get(place)) is not None:
            same(running.digest, claim.digest)
            await running.ended.wait()
            if running.receipt is not None:
                return replayed(running.receipt)
        # No await since the check: no other call of this id can have begun.
        operation = self._running[place] = Operation(claim.digest)
        try:
            with anyio.CancelScope(shield=True):
                return await self._once(principal, claim, operation, work)
        finally:
            del self._running[place]
            operation.ended.set()
        raise AssertionError("unreachable: a shield is never cancelled")

    async def _once(
        self, principal: Principal, claim: Claim, operation: Operation, work: Work
    ) -> CallResult:
        outcome: CallResult | BaseException = OutcomeUnknown("The call did not end.")
        try:
            outcome = await work()
            return outcome
        except Repeated as repeated:
            found = await self._known(principal, repeated.receipt)
            same(found.digest, claim.digest)
            operation.receipt = found
            return replayed(found)
        except BaseException as error:
            outcome = error
            raise
        finally:
            if claim.receipt is not None:
                await self._end(claim.receipt, outcome, operation)

    async def _claimed(self, request: Request, claim: Claim, work: Work) -> CallResult:
        session_id = request.session
        found = await self._store.receipt(session_id, claim.operation_id)
        if found is None:
            await self._make_room(session_id)
            begun = claim.begun(session_id, self._registry.core.clock.now())
            found = await self._store.claim_receipt(begun)
            if found is None:
                claim.receipt = begun
                return await work()
        raise Repeated(found)

    async def _make_room(self, session_id: str) -> None:
        policy = self._registry.core.policy
        count, size = await self._store.receipts(session_id)
        if count >= policy.receipts or size >= policy.receipts_bytes:
            raise SessionLimit(
                f"The session keeps the results of {count} operations, as much as it may.",
                session_id=session_id,
                recovery="Make a new session, or send the call without an operation id.",
            )

    async def _end(
        self, begun: ReceiptRecord, outcome: CallResult | BaseException, operation: Operation
    ) -> None:
        """Make the end of a call durable. A failure is only logged, since the call ran."""
        forget = _left_alone(outcome)
        policy = self._registry.core.policy
        receipt = settled(begun, outcome, self._registry.core.clock.now(), policy.receipt_bytes)
        if not forget:
            operation.receipt = receipt
        try:
            await self._store.settle_receipt(receipt, forget=forget)
        except StoreUnavailable as error:
            logger.error("the end of an operation is not recorded yet: %s", error)
            self._store.append_receipt(receipt, forget=forget)

    async def _known(self, principal: Principal, found: ReceiptRecord) -> ReceiptRecord:
        """Return the current version of a receipt.

        Raises:
            SessionBusy: its call may still run, in another process.
        """
        if found.status != STARTED:
            return found
        await self._elsewhere(principal, found.session_id)
        # No call of this id runs: its end is waiting to be written, or the process that ran it is gone.
        await self._store.flush()
        return await self._store.receipt(found.session_id, found.operation_id) or found

    async def _elsewhere(self, principal: Principal, session_id: str) -> None:
        record = await self._store.get(session_id)
        if record is None or record.node in (None, self._node) or record.status is Status.CLOSED:
            return
        try:
            session = await self._registry.find(principal, session_id)
        except SessionBusy:
            raise
        except SessionError:
            return
        await self._registry.pausing.give_back(session)

    async def _counted(self, request: Request, claim: Claim, work: Work) -> CallResult:
        """Run `work`, and keep calls of services in this session from using the same id meanwhile."""
        principal, session_id, key = request.principal, request.session, claim.operation_id
        session = self._registry.live(principal, session_id)
        if session is None:
            return await self._alone(principal, session_id, claim, work)
        ours = session.operations.setdefault(key, Operation(claim.digest))
        same(ours.digest, claim.digest)
        try:
            return await self._alone(principal, session_id, claim, work)
        finally:
            # Several callers may wait for the same operation; the first that has its answer removes it.
            if session.operations.get(key) is ours:
                session.operations.pop(key).ended.set()
            session.receipts = None


def _left_alone(outcome: CallResult | BaseException) -> bool:
    """Whether the call changed nothing, for a reason that may pass, so that it may be sent again."""
    if isinstance(outcome, StateConflict) or not isinstance(outcome, SessionError):
        return False
    return outcome.retryable or isinstance(outcome, _NOT_THERE)


__all__ = ["Receipts"]
