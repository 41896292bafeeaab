"""One store per test module, and one service that its spaces can have."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import psutil
import pytest
from front import UPSTREAMS, service

from statehold.client.mcpstore import MCPStore


@pytest.fixture(scope="module")
def counter() -> dict[str, Any]:
    """How a program describes the counting service to MCPStore."""
    return {"name": "counter", **service("asking")}


@pytest.fixture(scope="module")
def store(counter: dict[str, Any]) -> Generator[MCPStore]:
    """A store of its own, whose space has the service `counter`."""
    with MCPStore.setup_store() as found:
        found.for_store().add_service(counter)
        yield found


def counting() -> int:
    """Return how many counting servers run for this process."""
    found = 0
    for child in psutil.Process().children(recursive=True):
        try:
            found += str(UPSTREAMS / "asking.py") in child.cmdline()
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture
def servers() -> Any:
    """`servers()` is how many counting servers run."""
    return counting
