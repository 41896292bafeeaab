"""Shares of owners in one proxy: bytes a second, and connections at a time."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio

from ....sessions.clock import Clock

_MAX_OWNERS: Final = 4096
_FILES: Final = 4
"""A connection of a browser takes two files, one to each side. Half of all files are left to the rest of the process."""


def affordable() -> int:
    """Return how many connections this process can serve within its limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_OWNERS if soft == resource.RLIM_INFINITY else min(_MAX_OWNERS, soft // _FILES)


class TrafficQuota:
    """Counts the units of a scarce resource, such as connections, that each owner holds.

    An owner may hold as many units as are still free: a single owner half of them, two owners a third each. So there is room
    for a late owner, however many pages of the others are open.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_owner: Counter[str] = Counter()
        self.open = 0

    def is_full(self, owner: str) -> bool:
        """Return whether an owner may take no more now."""
        return self._by_owner[owner] >= self._limit - self.open

    def take(self, owner: str) -> None:
        """Count one more unit of an owner, until give_back(). Does not check the limit: see full()."""
        self.open += 1
        self._by_owner[owner] += 1

    def release(self, owner: str) -> None:
        """Count one unit less."""
        self.open -= 1
        self._by_owner[owner] -= 1
        if not self._by_owner[owner]:
            del self._by_owner[owner]


BURST_SECONDS: Final = 0.25
"""Unused capacity accumulates for at most so many seconds."""

_PIECE: Final = 64 * 2**10


class Bandwidth:
    """A leaky bucket. Each take() waits until the bytes taken before, by any caller, have had their time."""

    def __init__(self, bytes_per_second: int | None, clock: Clock) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._free_at = 0.0
        self._pauses = 0
        self._release = anyio.Event()

    @property
    def piece(self) -> int:
        """The number of bytes to read at once. It is small if the rate is low, so that bytes flow evenly."""
        if self._rate is None:
            return _PIECE
        return max(1, min(_PIECE, int(self._rate * BURST_SECONDS)))

    async def take(self, count: int) -> None:
        """Wait until `count` bytes may pass. Bytes of a cancelled call stay taken."""
        while self._pauses:
            await self._release.wait()
        if self._rate is None:
            return
        now = self._clock.now()
        self._free_at = max(self._free_at, now - BURST_SECONDS) + count / self._rate
        if self._free_at > now:
            await self._clock.sleep_until(self._free_at)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Let no bytes pass inside the block. Blocks may overlap; bytes pass again after the last one."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                release, self._release = self._release, anyio.Event()
                release.set()
