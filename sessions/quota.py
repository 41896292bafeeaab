"""How much the sessions of one principal may take in the store, and how much of the disk stays free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .clock import Clock
from .errors import SessionLimit
from .policy import Policy
from .store.base import Store

MEASURE_SECONDS: Final = 60.0
"""How often at most the store is asked again what a principal over its budget takes."""
STALE_SECONDS: Final = 600.0
"""After so long the store is asked again in any case: snapshots and journals grow without being counted here."""


@dataclass(slots=True)
class _Usage:
    bytes: int
    measured_at: float


class Quota:
    """Counts what principals store: asked of the store once, then counted as it grows. It lives as long as the registry.

    The policy says how many bytes a principal may store and how many stay free on the disk. The count is compared with
    the store again before anything is refused, so what was purged meanwhile makes room.
    """

    def __init__(self, store: Store, clock: Clock, policy: Policy) -> None:
        self._store = store
        self._clock = clock
        self._most = policy.stored_bytes_per_principal
        self._floor = policy.free_disk_bytes
        self._usage: dict[str, _Usage] = {}

    async def admit(self, owner: str, growth: int) -> None:
        """Count `growth` bytes that a principal is about to store; a negative number makes room.

        Raises:
            SessionLimit: the budget of the principal is used up, or the disk is nearly full. Nothing was counted.
        """
        if growth > 0:
            self._check_disk()
        if not self._most:
            return
        usage, now = self._usage.get(owner), self._clock.now()
        over = usage is not None and usage.bytes + growth > self._most
        rest = MEASURE_SECONDS if over else STALE_SECONDS
        if usage is None or now - usage.measured_at >= rest:
            usage = self._usage[owner] = _Usage(await self._store.usage(owner), now)
        if growth > 0 and usage.bytes + growth > self._most:
            raise SessionLimit(
                f"The caller's sessions take {usage.bytes} of the {self._most} bytes that they may take in the store, "
                "closed ones included.",
                retry_after=MEASURE_SECONDS,
                recovery="Delete closed sessions, or wait until they are purged.",
            )
        usage.bytes = max(0, usage.bytes + growth)

    def _check_disk(self) -> None:
        free = self._store.free_bytes() if self._floor else None
        if free is not None and free < self._floor:
            raise SessionLimit(
                f"The disk of the data folder has {free >> 20} MiB left; the last {self._floor >> 20} MiB are kept for what "
                "is stored already.",
                retry_after=MEASURE_SECONDS,
                recovery="Free some space on the disk of the server; calls of open sessions go on.",
            )


__all__ = ["MEASURE_SECONDS", "Quota"]
