"""The receipts of calls that are remembered and not stored: they bridge a lost connection, not the end of the process."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Final
from weakref import WeakKeyDictionary

from ..clock import Clock
from ..core import Core
from ..errors import OutcomeUnknown
from ..live.session import LiveSession
from ..owned_map import OwnedMap
from ..policy import Policy
from ..records import ReceiptRecord
from .receipts import ANOTHER, Operation, Outcome, close_receipt

RESULTS_BYTES: Final = 4 << 20
"""Most bytes of the results in one memory. Beyond it, only the receipts of the oldest calls remain, without results."""

REMEMBERED: Final = 900.0
"""Seconds after the end of a call in which its caller may repeat it, if the receipt is in memory."""

TOTAL_BYTES: Final = 256 << 20
"""Most bytes of the results of all sessions. Beyond it, the sessions with the most keep their receipts without results."""


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
        if not operation.is_used_up:
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
