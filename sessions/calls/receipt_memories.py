"""The receipts in memory of all sessions of a process, whose results have a total."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from ..core import Core
from ..live.session import LiveSession
from .idempotency import ReceiptMemory

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
            memory = ReceiptMemory(core.clock, core.policy, epoch, self._note_growth)
            self._memories[session] = memory
        return memory

    def _note_growth(self, size: int) -> None:
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
