"""How fast the connections of one grant may carry bytes, all together."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio

from ....sessions.clock import Clock

BURST_SECONDS: Final = 0.25
"""How much of an unused rate may be made up for."""

_PIECE: Final = 64 * 2**10


class Bandwidth:
    """A leaky bucket. Whoever takes bytes waits until those taken before, by anybody, have had their time."""

    def __init__(self, bytes_per_second: int | None, clock: Clock) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._free_at = 0.0
        self._holds = 0
        self._released = anyio.Event()

    @property
    def piece(self) -> int:
        """How many bytes to read at once: little where the rate is low, so that they flow evenly."""
        if self._rate is None:
            return _PIECE
        return max(1, min(_PIECE, int(self._rate * BURST_SECONDS)))

    async def take(self, count: int) -> None:
        """Return when so many bytes may pass. Bytes of a cancelled call stay taken."""
        while self._holds:
            await self._released.wait()
        if self._rate is None:
            return
        now = self._clock.now()
        self._free_at = max(self._free_at, now - BURST_SECONDS) + count / self._rate
        if self._free_at > now:
            await self._clock.sleep_until(self._free_at)

    @contextmanager
    def hold(self) -> Generator[None]:
        """Let no bytes pass until this is over. Several may hold at once; then until the last is over."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                released, self._released = self._released, anyio.Event()
                released.set()


__all__ = ["BURST_SECONDS", "Bandwidth"]
