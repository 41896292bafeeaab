"""One store per test module, and one service that its spaces can have."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import psutil
import pytest
from support.gateway_process import service
from support.waiting import until_blocking

from statehold.client.integrations.mcpstore import MCPStore

MARK = "--for=mcpstore"
"""The argument by which the counting servers of these tests are found."""


@pytest.fixture(scope="module")
def counter() -> dict[str, Any]:
    """How a program describes the counting service to MCPStore."""
    return {"name": "counter", **service("asking", MARK)}


@pytest.fixture(scope="module")
def store(counter: dict[str, Any]) -> Generator[MCPStore]:
    """A separate store, whose space has the service `counter`."""
    with MCPStore.setup_store() as opened:
        opened.for_store().add_service(counter)
        yield opened


def counting() -> int:
    """Return how many of them run for this process."""
    servers_running = 0
    for child in psutil.Process().children(recursive=True):
        try:
            servers_running += MARK in child.cmdline()
        except psutil.NoSuchProcess:
            continue
    return servers_running


@pytest.fixture
def servers() -> Callable[[int], None]:
    """`servers(n)` waits until n counting servers run, and fails otherwise."""

    def check(wanted: int) -> None:
        # A changed list of tools briefly starts one more server, and there is no event for its end.
        until_blocking(lambda: counting() == wanted)

    return check
