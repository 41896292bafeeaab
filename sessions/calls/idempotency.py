"""Idempotent calls: a call with an operation id runs at most once, and a repeat gets the recorded outcome."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import anyio

from ..clock import Clock
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
from ..live.session import LiveSession
from ..owned_map import OwnedMap
from ..policy import Policy
from ..records import Principal, ReceiptRecord
from ..registry import Registry
from ..services import ToolResult
from .receipts import ANOTHER, Operation, RunningOperations, close_receipt, replay
from .request import Call

logger = logging.getLogger("statehold.sessions")

RESULTS_BYTES: Final = 4 << 20
"""Most bytes of the results in one memory. Beyond it, only the receipts of the oldest calls remain, without results."""

REMEMBERED: Final = 900.0
"""Seconds after the end of a call in which its caller may repeat it, if the receipt is in memory."""

SHARED_PART: Final = 0.75
"""The part of the receipts of a session that callers may fill with whom it is shared."""

ENTRY_BYTES: Final = 1000
"""Approximate bytes of the start of an operation in the store."""

UNRECORDED_SECONDS: Final = 10.0
"""Seconds that an answer waits for a store that refuses the end of its call."""
RETRY_SECONDS: Final = 0.5

Outcome = ToolResult | BaseException


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


def _keeps_id(operation: Operation) -> bool:
    """Whether the id of a call is used up: it has a result, or may have had an effect."""
    return operation.effective or operation.result is not None


class ReceiptMemory:
    """Receipts that live as long as their origin: a session in one epoch, or this process.

    Callers acknowledge the results they have. When there is no room for more, the oldest receipt of the scope with the
    most is forgotten. For REMEMBERED seconds after that, a repeat of an unknown id of this scope gets OutcomeUnknown instead
    of running.
    """

    def __init__(
        self,
        clock: Clock,
        policy: Policy,
        origin: int | str,
        note_growth: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`note_growth` is called with the bytes of each result that is added."""
        self.origin = origin
        self._record_growth = note_growth
        self._clock = clock
        self._limit = min(policy.receipt_bytes, RESULTS_BYTES)
        self._receipts = OwnedMap[tuple[str, str], ReceiptRecord](policy.receipts)
        """By scope, in the order in which the calls ended."""
        self.bytes = 0
        """Upper bound of the bytes of the results; it includes some that were acknowledged since."""
        self._unsure_until: dict[str, float] = {}
        """The ends of these times, by the scopes that lost a receipt."""

    async def find(self, operation: Operation) -> ReceiptRecord | None:
        receipt = self._receipts.get((operation.scope, operation.id))
        if receipt is None and operation.is_repeat:
            if operation.origin != self.origin:
                message = "The call was sent to another process, or before the session changed hands; it may have run."
                raise OutcomeUnknown(message, recovery=ANOTHER)
            if self._clock.now() < self._unsure_until.get(operation.scope, 0.0):
                message = "The call may have run so long ago that its result is not remembered."
                raise OutcomeUnknown(message, recovery=ANOTHER)
        return receipt

    async def start(self, operation: Operation, *, new: bool) -> None:
        operation.start_receipt = operation.start("", self._clock.now())

    async def end(self, operation: Operation, outcome: Outcome) -> None:
        if not _keeps_id(operation):
            return
        assert operation.start_receipt is not None
        now = self._clock.now()
        receipt = close_receipt(operation.start_receipt, outcome, now, self._limit)
        operation.receipt = receipt
        key = operation.scope, operation.id
        # A continued call moves to the end.
        loser = self._receipts.put(operation.scope, key, receipt)
        if loser is not None:
            for scope in [scope for scope, end in self._unsure_until.items() if end <= now]:
                del self._unsure_until[scope]
            self._unsure_until[str(loser)] = now + REMEMBERED
        if receipt.result is not None:
            self.bytes += receipt.bytes
            self._record_growth(receipt.bytes)
        if self.bytes > RESULTS_BYTES:
            self.drop_results(RESULTS_BYTES)

    def forget(self, scope: str, operation_id: str) -> bool:
        """Delete the receipt that a caller acknowledged; return whether there was one."""
        return self._receipts.pop((scope, operation_id)) is not None

    def drop_results(self, most: int) -> None:
        """Drop the results of the oldest calls of the scopes with the most, until all take at most `most` bytes."""
        results = defaultdict[Hashable, deque[tuple[tuple[str, str], ReceiptRecord]]](deque)
        sizes = Counter[Hashable]()
        for scope, key, receipt in self._receipts.entries():
            if receipt.result is not None:
                results[scope].append((key, receipt))
                sizes[scope] += receipt.bytes
        self.bytes = sizes.total()
        while self.bytes > most and sizes:
            scope = max(sizes, key=sizes.__getitem__)
            key, receipt = results[scope].popleft()
            sizes[scope] -= receipt.bytes
            self.bytes -= receipt.bytes
            if not results[scope]:
                del sizes[scope]
            self._receipts.replace(key, receipt.model_copy(update={"result": None}))


class CallReceipts:
    """The stored receipts of calls to a service. They are written with the journal, fenced by the epoch of the session."""

    def __init__(self, core: Core, call: Call) -> None:
        self._core = core
        self._call = call

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
            if session.stored_receipts is None:
                session.stored_receipts = await core.store.receipts(session.id)
            is_shared = self._call.request.sharee is not None
            require_room(core.policy, session.id, session.stored_receipts, is_shared=is_shared)
        if session.quota is not None:
            session.quota.check(session.record.owner, ENTRY_BYTES)
        started_at = core.clock.now()
        entry = self._call.entry(core, started_at)
        await core.redactions.redact(entry, session.record.owner)
        entry.seq = seq = session.next_seq()
        epoch = session.record.epoch
        receipt = operation.start(session.id, started_at, seq=seq, epoch=epoch)
        try:
            await session.save(journal=[entry.record()], receipts=[receipt])
        except (SessionBusy, StoreUnavailable):
            session.free_seq(seq)
            raise
        operation.start_receipt = receipt
        session.operations.add(operation.id)

    async def end(self, operation: Operation, outcome: Outcome) -> None:
        session, core = self._call.session, self._core
        assert operation.start_receipt is not None
        ended_at = self._call.ended_at or core.clock.now()
        receipt = close_receipt(
            operation.start_receipt,
            outcome,
            ended_at,
            _result_limit(core.policy, session.quota, session.record.owner),
        )
        _count_result(session.quota, session.record.owner, receipt)
        if _keeps_id(operation):
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
            session.operations.discard(operation.id)
        if is_lost and isinstance(outcome, ToolResult):
            # So a repeat at the node that takes the session over is answered.
            operation.receipt = None
            raise OutcomeUnknown(
                "Another process took the session over during the call.", session_id=session.id
            )
        if session.stored_receipts is not None and not forget:
            count, size = session.stored_receipts
            size += receipt.bytes if receipt.result else 0
            session.stored_receipts = count + 1, size


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
        forget, core = not _keeps_id(operation), self._core
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
            session.stored_receipts = None


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


TOTAL_BYTES: Final = 256 << 20
"""Most bytes of the results of all sessions. Beyond it, the sessions with the most keep their receipts without results."""


class ReceiptMemories:
    """The receipts in memory by session. Those of a session end when this node gives the session up."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._memories: WeakKeyDictionary[LiveSession, ReceiptMemory] = WeakKeyDictionary()
        self._bytes = 0
        """Upper bound of the bytes of all results; it includes those of sessions that were given up since."""

    def of(self, session: LiveSession) -> ReceiptMemory:
        memory = self._memories.get(session)
        if memory is None:
            core, epoch = self._core, session.record.epoch
            memory = ReceiptMemory(core.clock, core.policy, epoch, self._record_growth)
            self._memories[session] = memory
        return memory

    def _record_growth(self, size: int) -> None:
        self._bytes += size
        if self._bytes <= TOTAL_BYTES:
            return
        memories = sorted(self._memories.values(), key=lambda memory: -memory.bytes)
        self._bytes = sum(memory.bytes for memory in memories)
        for memory in memories:
            if self._bytes <= TOTAL_BYTES:
                break
            self._bytes -= memory.bytes
            memory.drop_results(0)
