"""Samples of the CPU time and the memory of the programs of sessions, for the use of their services in the last hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import anyio.to_thread

from ...sessions.live.connection import LiveConnection
from ...sessions.metrics.usage import ServiceUsage
from ...sessions.registry import Registry
from ...tools.processes import procfs

SECONDS: Final = 60.0
"""Seconds between two samples."""


class UsageSamples:
    """Samples the sessions of one process until run() is cancelled. A connection that sessions share is not sampled."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cpu_seconds: dict[LiveConnection, float] = {}
        """The CPU time of the programs of each connection at the last sample."""

    async def run(self) -> None:
        clock = self._registry.core.clock
        while True:
            await clock.sleep_until(clock.now() + SECONDS)
            await self.take()

    async def take(self) -> None:
        """Take one sample of all programs."""
        found: list[tuple[LiveConnection, ServiceUsage]] = []
        for session in self._registry.owned_sessions():
            for name, binding in session.bindings.items():
                if binding.live is not None and binding.service.scope == "session":
                    found.append((binding.live, session.activity.usage_of(name)))
        if not found and not self._cpu_seconds:
            return
        pids = [live.pids() for live, _ in found]
        samples = await anyio.to_thread.run_sync(_read, pids)
        former, self._cpu_seconds = self._cpu_seconds, {}
        at = self._registry.core.clock.now()
        for (live, usage), (cpu_seconds, memory_bytes) in zip(found, samples, strict=True):
            # That of a program which outlived an earlier process is known from its second sample on.
            since = former.get(live, 0.0 if live.resume_token is None else cpu_seconds)
            self._cpu_seconds[live] = cpu_seconds
            usage.record_sample(at, max(0.0, cpu_seconds - since), memory_bytes)


def _read(pids: Sequence[Iterable[int]]) -> list[tuple[float, int]]:
    """Return CPU time and memory of the programs of each connection."""
    return [
        (
            sum(procfs.tree_cpu_seconds(pid) or 0.0 for pid in each),
            sum(procfs.tree_memory(pid) or 0 for pid in each),
        )
        for each in pids
    ]
