"""The use that one session made of one service in the last hour: calls, errors, latency, restarts, CPU time, memory."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from .instruments import Histogram

SLOT_SECONDS: Final = 300.0
SLOTS: Final = 12


class _Slot:
    """The use within SLOT_SECONDS."""

    __slots__ = ("cpu_seconds", "durations", "errors", "memory_bytes", "number", "restarts")

    def __init__(self, number: int) -> None:
        self.number = number
        self.durations = Histogram()
        self.errors = 0
        self.restarts = 0
        self.cpu_seconds = 0.0
        self.memory_bytes = 0


class ServiceUsage:
    """The use of one service by one session. It lives as long as the session is open in this process.

    Times are in seconds since 1970. It takes about 4 KB at most.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots = deque[_Slot](maxlen=SLOTS)

    def _slot(self, at: float) -> _Slot:
        number = int(at // SLOT_SECONDS)
        if not self._slots or self._slots[-1].number < number:
            self._slots.append(_Slot(number))
        return self._slots[-1]

    def record_call(self, at: float, seconds: float, *, has_failed: bool) -> None:
        slot = self._slot(at)
        slot.durations.record(seconds)
        slot.errors += has_failed

    def record_restart(self, at: float) -> None:
        self._slot(at).restarts += 1

    def record_sample(self, at: float, cpu_seconds: float, memory_bytes: int) -> None:
        """Record CPU time since the last sample, and the memory now."""
        slot = self._slot(at)
        slot.cpu_seconds += cpu_seconds
        slot.memory_bytes = max(slot.memory_bytes, memory_bytes)

    def describe(self, now: float) -> dict[str, Any]:
        """Return the last hour as JSON. Latencies are None without calls, CPU and memory 0 without samples."""
        oldest = now // SLOT_SECONDS - SLOTS
        slots = [slot for slot in self._slots if slot.number > oldest]
        durations = Histogram()
        for slot in slots:
            durations.add(slot.durations)
        return {
            "calls": sum(durations.counts),
            "errors": sum(slot.errors for slot in slots),
            "p50_seconds": durations.quantile(0.5),
            "p95_seconds": durations.quantile(0.95),
            "restarts": sum(slot.restarts for slot in slots),
            "cpu_seconds": round(sum(slot.cpu_seconds for slot in slots), 3),
            "peak_memory_bytes": max((slot.memory_bytes for slot in slots), default=0),
        }
