"""Commands that call tools: those of a module share a server."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from support.tool_commands import Commands, tool_commands


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Generator[Commands]:
    with tool_commands(tmp_path_factory.mktemp("commands")) as commands:
        yield commands


@pytest.fixture
def own_commands(tmp_path: Path) -> Generator[Commands]:
    """Commands with a server of the test's own."""
    with tool_commands(tmp_path) as commands:
        yield commands
