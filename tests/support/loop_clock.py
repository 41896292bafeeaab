"""The clock of the event loop, moved on by a test, so that a time limit of minutes costs none."""

from __future__ import annotations

import asyncio

import anyio.lowlevel
import pytest


class LoopClock:
    """Moves the time of the running loop: `await later.by(400)`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._offset = 0.0
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._offset)

    async def by(self, seconds: float) -> None:
        """Move on, and let everything that is due by then happen."""
        self._offset += seconds
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
