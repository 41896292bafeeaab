"""Two Statehold processes on one data folder: one owns the session of a test, the other one is called for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from gateway_process import Era, Running, Transport, Way, opened_session, serving
from pairs import Pair

EDGES: list[tuple[Transport, Era]] = [
    ("stdio", "modern"),
    ("stdio", "legacy"),
    ("http", "modern"),
    ("http", "legacy"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def owner(config_file: Path, data: Path) -> Generator[Running]:
    with serving(config_file, data) as running:
        yield running


@pytest.fixture(scope="module")
def other(config_file: Path, data: Path) -> Generator[Running]:
    """A second process over HTTP."""
    with serving(config_file, data) as running:
        yield running


@pytest.fixture(params=EDGES, ids="-".join)
def edge(request: pytest.FixtureRequest, config_file: Path, data: Path) -> Way:
    transport, era = request.param
    way = Way(transport, era, config_file, data)
    if transport == "http":
        way.url = request.getfixturevalue("other").url
    return way


@pytest.fixture
async def pair(owner: Running, edge: Way, config_file: Path, data: Path) -> AsyncGenerator[Pair]:
    way = Way("http", "modern", config_file, data, url=owner.url)
    async with way.connect() as client:
        yield Pair(owner, client, edge, await opened_session(client))
