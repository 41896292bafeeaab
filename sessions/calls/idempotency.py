"""Idempotent calls: a call with an operation id runs at most once, and a repeat gets the recorded outcome."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Protocol

import anyio

from ..core import Core
from ..errors import (
    OperationBusy,
    OutcomeUnknown,
    SessionBusy,
    SessionError,
    SessionLimit,
    StoreUnavailable,
)
from ..journal.entries import INPUT_REQUIRED, STARTED
from ..lifecycle import Status
from ..live.quota import Quota
from ..policy import Policy
from ..records import NEVER, Principal, ReceiptRecord
from ..registry import Registry
from ..services import ToolResult
from .hand_over import KEPT_SECONDS, OPEN_SECONDS, HandOver
from .receipts import Operation, Outcome, RunningOperations, close_receipt, replay
from .request import Call

logger = logging.getLogger("statehold.sessions")

SHARED_PART: Final = 0.75
"""The part of the receipts of a session that callers may fill with whom it is shared."""

ENTRY_BYTES: Final = 1000
"""Approximate bytes of the start of an operation in the store."""

UNRECORDED_SECONDS: Final = 10.0
"""Seconds that an answer waits for a store that refuses the end of its call."""
RETRY_SECONDS: Final = 0.5


class Receipts(Protocol):
    """The receipts of one scope, in memory or in the store."""

    async def find(self, operation: Operation) -> ReceiptRecord | None:
        """Return the receipt of an id, None when no call of it has run.

        Raises:
            OutcomeUnknown: a call of it may have run.
        """
        ...

    async def start(self, operation: Operation, *, new: bool) -> None:
        """Keep the start of a call; with `new` its id has no receipt yet.

        Raises:
            SessionLimit: there is no room for another receipt.
            SessionBusy: another process runs a call with this id.
        """
        ...

    async def end(self, operation: Operation, outcome: Outcome) -> None:
        """Keep the outcome of a call and set `operation.receipt`, or give its id free. Not interrupted by cancellation.

        If the store refuses the outcome, return when it takes it again, when cancelled, or after UNRECORDED_SECONDS.

        Raises:
            OutcomeUnknown: the call has a result, but another node owns its session by now, or soon.
        """
        ...


class IdempotencyGuard:
    """Runs each operation at most once, by the running operations of this process and the receipts of the others."""

    def __init__(self, running_operations: RunningOperations) -> None:
        self._running = running_operations

    def is_running(self, scope: str, operation_id: str) -> bool:
        return self._running.get(scope, operation_id) is not None

    @asynccontextmanager
    async def once(
        self, operation: Operation, receipts: Receipts
    ) -> AsyncGenerator[ToolResult | None]:
        """Yield the recorded result of the call with this id, or None: then the block runs it and sets `operation.result`.

        Concurrent calls with one id wait for the first. Cancelling one that waits leaves the first alone.

        Raises:
            InvalidArgument: the id was used for another call.
            OutcomeUnknown: a call of this id started, and its outcome is unknown.
            SessionLimit: the scope has no room for another receipt.
            SessionError: the recorded error of the call.
        """
        while (running := self._running.get(operation.scope, operation.id)) is not None:
            operation.require_same_call(running.digest)
            if operation.hand_over is not None:
                operation.hand_over.offer(partial(_join, running, operation.hand_over))
            await running.ended.wait()
            if running.receipt is not None:
                yield replay(running.receipt)
                return
        # No await since the check: no other call with this id can have started.
        self._running.begin(operation)
        try:
            receipt = await receipts.find(operation)
            if receipt is not None:
                operation.require_same_call(receipt.digest)
                if receipt.status != INPUT_REQUIRED or not operation.continues:
                    operation.receipt = receipt
                    yield replay(receipt)
                    return
            await receipts.start(operation, new=receipt is None)
            operation.started.set()
            outcome: Outcome = OutcomeUnknown("The call did not end.")
            try:
                yield None
                outcome = operation.result or outcome
            except BaseException as error:
                outcome = error
                raise
            finally:
                await receipts.end(operation, outcome)
        finally:
            self._running.end(operation)


async def _join(running: Operation, hand_over: HandOver) -> None:
    """Hand a repeat over, with the call that it waits for: that goes on without its own request, too.

    Raises:
        OperationBusy: that call has ended, its receipt is in memory, or it ends with its request.
    """
    await running.started.wait()
    lasts = running.work is not None
    if not lasts and running.hand_over is not None:
        lasts = await running.hand_over.take()
    if not lasts or not running.is_stored or running.ended.is_set():
        raise OperationBusy(session_id=running.scope)
    assert running.start_receipt is not None
    hand_over.began_at = running.start_receipt.started_at


class CallReceipts:
    """The stored receipts of calls to a service. They are written with the journal, fenced by the epoch of the session."""

    def __init__(self, core: Core, call: Call) -> None:
        self._core = core
        self._call = call
        hand_over = call.request.hand_over
        self._expires = hand_over is not None and hand_over.expires

    async def find(self, operation: Operation) -> ReceiptRecord | None:
        store = self._core.store
        receipt = await store.receipt(operation.scope, operation.id)
        if receipt is not None and receipt.status == STARTED:
            # No call of this id runs: its end is waiting to be written, or the process that ran it is gone.
            await store.flush()
            receipt = await store.receipt(operation.scope, operation.id)
        return receipt

    async def start(self, operation: Operation, *, new: bool) -> None:
        session, core = self._call.session, self._core
        if new:
            is_shared = self._call.request.sharee is not None
            require_room(core.policy, session.id, await self._totals(), is_shared=is_shared)
        if session.quota is not None:
            session.quota.check(session.record.owner, ENTRY_BYTES)
        started_at = self._call.started_at or core.clock.now()
        entry = self._call.entry(core, started_at)
        await core.redactions.redact(entry, session.record.owner)
        entry.seq = seq = session.next_seq()
        epoch = session.record.epoch
        expires_at = started_at + OPEN_SECONDS + KEPT_SECONDS if self._expires else None
        receipt = operation.start(
            session.id,
            started_at,
            seq=seq,
            epoch=epoch,
            expires_at=expires_at,
            upstream=self._call.upstream,
        )
        try:
            await session.save(journal=[entry.record()], receipts=[receipt])
        except (SessionBusy, StoreUnavailable):
            session.free_seq(seq)
            raise
        operation.start_receipt = receipt
        session.started_entries.add(seq)

    async def _totals(self) -> tuple[int, int]:
        """Return the number of receipts of the session that expire as this one does, and the bytes of their results."""
        session, expires, policy = self._call.session, self._expires, self._core.policy
        count, size = session.stored_receipts.get(expires, (policy.receipts, 0))
        if count >= policy.receipts * SHARED_PART or size >= policy.receipts_bytes * SHARED_PART:
            # Some may have expired since.
            count, size = await self._core.store.receipts(session.id, expiring=expires)
            session.stored_receipts[expires] = count, size
        return count, size

    async def tell(self, operation: Operation) -> None:
        """Note in the receipt that the call was handed over: the next process goes on with it. Raises as start() does."""
        if not operation.is_stored:
            await self.start(operation, new=True)
        elif operation.start_receipt is not None and operation.start_receipt.expires_at is None:
            receipt = operation.start_receipt.model_copy(update={"expires_at": NEVER})
            await self._call.session.save(receipts=[receipt])
            operation.start_receipt = receipt

    async def end(self, operation: Operation, outcome: Outcome) -> None:
        session, core = self._call.session, self._core
        if session.is_left:
            return
        assert operation.start_receipt is not None
        ended_at = self._call.ended_at or core.clock.now()
        receipt = close_receipt(
            operation.start_receipt,
            outcome,
            ended_at,
            _result_limit(core.policy, session.quota, session.record.owner),
        )
        _count_result(session.quota, session.record.owner, receipt)
        if operation.is_used_up:
            operation.receipt = receipt
        forget = [operation.id] if operation.receipt is None else []
        entry = self._call.entry(core, receipt.started_at, ended_at, outcome)
        entry.seq = receipt.seq
        if session.quota is not None and not session.quota.room(session.record.owner):
            entry.withhold()
        await core.redactions.redact(entry, session.record.owner)
        record = entry.record()
        is_lost = False
        try:
            await session.save(
                ended_entries=[record], receipts=[] if forget else [receipt], forget=forget
            )
        except SessionError as error:
            # The call ran: after another error now the caller would run it again.
            logger.error("the end of an operation was not recorded: %s", error)
            is_lost = session.fenced
        except StoreUnavailable as error:
            logger.error("the end of an operation is not recorded yet: %s", error)
            if not forget:
                core.store.append_end(record, receipt, core.node.id, session.record.owner)
                await _wait_for_store(core)
            is_lost = session.fenced or not core.node.may_act()
        finally:
            session.started_entries.discard(receipt.seq)
        if is_lost and isinstance(outcome, ToolResult):
            # So a repeat at the node that takes the session over is answered.
            operation.receipt = None
            raise OutcomeUnknown(
                "Another process took the session over during the call.", session_id=session.id
            )
        if (totals := session.stored_receipts.get(self._expires)) is not None and not forget:
            count, size = totals
            size += receipt.bytes if receipt.result else 0
            session.stored_receipts[self._expires] = count + 1, size


class HandedOverReceipts(CallReceipts):
    """The receipt of a call whose id is ours: it is written when the call is handed over, and not if that never happens."""

    async def find(self, operation: Operation) -> ReceiptRecord | None:
        return None

    async def start(self, operation: Operation, *, new: bool) -> None:
        pass

    async def end(self, operation: Operation, outcome: Outcome) -> None:
        if operation.start_receipt is not None:
            await super().end(operation, outcome)


async def _wait_for_store(core: Core) -> None:
    """Wait until the store takes writes again: if the process ended before, an answered call would be recorded as lost."""
    with anyio.move_on_after(UNRECORDED_SECONDS):
        while True:
            await anyio.sleep(RETRY_SECONDS)
            with suppress(StoreUnavailable):
                await core.store.flush()
                return


def _result_limit(policy: Policy, quota: Quota | None, owner: str) -> int:
    """Return the bytes that the result of an operation may take in the store."""
    return policy.receipt_bytes if quota is None else min(policy.receipt_bytes, quota.room(owner))


def _count_result(quota: Quota | None, owner: str, receipt: ReceiptRecord) -> None:
    """Count a result before it is written, so that those that end meanwhile find less room."""
    if quota is not None and receipt.result is not None:
        quota.count(owner, receipt.bytes)


class ToolReceipts:
    """The stored receipts of calls to our own tools. They do not depend on the owner of the session.

    Such a call may pause, close or create the session that keeps its receipt. The first call claims the receipt, and only
    that call ends it. A call that creates a session claims the receipt with the session; its scope is the principal.
    `is_shared`: the call is one of a caller with whom the principal shares the session.
    """

    def __init__(
        self, registry: Registry, principal: Principal, *, is_shared: bool = False
    ) -> None:
        self._is_shared = is_shared
        self._registry = registry
        self._core = registry.core
        self._principal = principal

    def _creates(self, operation: Operation) -> bool:
        return operation.scope == self._principal.key

    async def find(self, operation: Operation) -> ReceiptRecord | None:
        receipt = await self._read(operation)
        if receipt is None or receipt.status != STARTED:
            return receipt
        await self._refuse_while_owned_elsewhere(receipt.session_id)
        # No call of this id runs: its end is waiting to be written, or the process that ran it is gone.
        await self._core.store.flush()
        return await self._read(operation)

    async def _read(self, operation: Operation) -> ReceiptRecord | None:
        if self._creates(operation):
            return await self._core.store.creation_receipt(operation.scope, operation.id)
        return await self._core.store.receipt(operation.scope, operation.id)

    async def _refuse_while_owned_elsewhere(self, session_id: str) -> None:
        record = await self._core.store.get(session_id)
        if record is None or record.node in (None, self._core.node.id):
            return
        if record.status is Status.CLOSED:
            return
        try:
            session = await self._registry.find(self._principal, session_id)
        except SessionBusy:
            raise
        except SessionError:
            return
        await self._registry.access.give_back(session)

    async def start(self, operation: Operation, *, new: bool) -> None:
        if self._creates(operation):
            return
        session_id, store = operation.scope, self._core.store
        totals = await store.receipts(session_id)
        require_room(self._core.policy, session_id, totals, is_shared=self._is_shared)
        self._registry.quota.check(self._principal.key, ENTRY_BYTES)
        receipt = operation.start(session_id, self._core.clock.now())
        with anyio.CancelScope(shield=True):
            if await store.start_receipt(receipt) is not None:
                raise OperationBusy(session_id=session_id)
            operation.start_receipt = receipt

    async def end(self, operation: Operation, outcome: Outcome) -> None:
        if operation.start_receipt is None:
            return
        forget, core = not operation.is_used_up, self._core
        quota, owner = self._registry.quota, self._principal.key
        limit = _result_limit(core.policy, quota, owner)
        receipt = close_receipt(operation.start_receipt, outcome, core.clock.now(), limit)
        _count_result(quota, owner, receipt)
        if not forget:
            operation.receipt = receipt
        try:
            with anyio.CancelScope(shield=True):
                await core.store.end_receipt(receipt, forget=forget)
        except StoreUnavailable as error:
            # The call ran: after an error now the caller would run it again.
            logger.error("the end of an operation is not recorded yet: %s", error)
            core.store.append_receipt(receipt, owner, forget=forget)
        session = self._registry.live(self._principal, operation.scope)
        if session is not None:
            session.stored_receipts.clear()


def require_room(
    policy: Policy, session_id: str, totals: tuple[int, int], *, is_shared: bool
) -> None:
    """Raises SessionLimit when a session keeps as many receipts, or bytes of results, as it may.

    The last quarter is for the owner: nothing frees the room that callers took with whom it shares the session.
    """
    count, size = totals
    part = SHARED_PART if is_shared else 1.0
    if count >= policy.receipts * part or size >= policy.receipts_bytes * part:
        raise SessionLimit(
            f"The session keeps the results of {count} operations, as much as it may (history.receipts, "
            "history.receipts_bytes).",
            session_id=session_id,
            recovery="Make a new session, or send the call without an operation id.",
        )
