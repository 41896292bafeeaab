"""Two Statehold processes: one owns the session of a test, the other one is called for it.

They share a data folder, and forward over a Unix socket; or each has its own, as on two machines, and they share a database
and forward over the peer port.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Literal

import pytest
from support.gateway_process import (
    JSON,
    Era,
    Running,
    Transport,
    Way,
    opened_session,
    serving,
    toml,
)
from support.machines import cluster
from support.pairs import Pair
from support.selection import matrix

Hop = Literal["unix", "peer"]

LINKS: list[tuple[Hop, tuple[Transport, Era]]] = [
    ("unix", ("stdio", "modern")),
    ("unix", ("http", "legacy")),
    ("peer", ("http", "modern")),
]
"""Each hop, transport and era once: a request is forwarded after its framing is read."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "edge" in metafunc.fixturenames:
        links = matrix(*(pytest.param(hop, way, id="-".join((hop, *way))) for hop, way in LINKS))
        metafunc.parametrize(("hop", "edge"), links, indirect=True, scope="module")


@pytest.fixture(scope="module")
def hop(request: pytest.FixtureRequest) -> Hop:
    """The way between the two processes."""
    return request.param


@pytest.fixture(scope="module")
def config_files(
    settings: JSON,
    hop: Hop,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path]:
    """The configurations of the owner and of the other process, which takes on no sessions of others in a cluster."""
    folder = tmp_path_factory.mktemp("config")
    url = request.getfixturevalue("postgresql").fresh() if hop == "peer" else None
    for name, capacity in (("owner", 100), ("edge", 0)):
        more = {} if url is None else cluster(url, capacity=capacity)
        (folder / f"{name}.toml").write_text(toml({**settings, **more}))
    return folder / "owner.toml", folder / "edge.toml"


@pytest.fixture(scope="module")
def config_file(config_files: tuple[Path, Path]) -> Path:
    return config_files[0]


@pytest.fixture(scope="module")
def edge_config(config_files: tuple[Path, Path]) -> Path:
    return config_files[1]


@pytest.fixture(scope="module")
def data(hop: Hop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the owner."""
    return tmp_path_factory.mktemp("owner")


@pytest.fixture(scope="module")
def edge_data(hop: Hop, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the other process."""
    return data if hop == "unix" else tmp_path_factory.mktemp("edge")


@pytest.fixture(scope="module")
def owner(config_file: Path, data: Path) -> Generator[Running]:
    with serving(config_file, data) as running:
        yield running


@pytest.fixture(scope="module")
def other(edge_config: Path, edge_data: Path) -> Generator[Running]:
    """A second process over HTTP."""
    with serving(edge_config, edge_data) as running:
        yield running


@pytest.fixture(scope="module")
def edge(request: pytest.FixtureRequest, edge_config: Path, edge_data: Path) -> Way:
    """The way to the other process."""
    transport, era = request.param
    way = Way(transport, era, edge_config, edge_data)
    if transport == "http":
        way.url = request.getfixturevalue("other").url
    return way


@pytest.fixture
async def pair(owner: Running, edge: Way, config_file: Path, data: Path) -> AsyncGenerator[Pair]:
    way = Way("http", "modern", config_file, data, url=owner.url)
    async with way.connect() as client:
        yield Pair(owner, client, edge, await opened_session(client))
