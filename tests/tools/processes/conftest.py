"""The keeper of one folder, for several nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from support.kept_children import Nodes


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncGenerator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    await nodes.aclose()
