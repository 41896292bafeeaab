"""The ledger of child processes, for upstreams and browsers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from statehold.tools.processes.ledger import Ledger


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger(tmp_path / "data", node="test")
    yield ledger
    await ledger.aclose()
