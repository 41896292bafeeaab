"""The common rate limit of all connections of one EgressAccess."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio

from ....sessions.clock import Clock

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
