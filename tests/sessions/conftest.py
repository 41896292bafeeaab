"""The fixtures of the core's tests."""

from __future__ import annotations

import pytest
from support.engine import Build, engine
from support.loop_clock import LoopClock


@pytest.fixture
def build() -> Build:
    """Return the context manager that opens a House; see its arguments."""
    return engine


@pytest.fixture
async def loop_clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    return LoopClock(monkeypatch)
