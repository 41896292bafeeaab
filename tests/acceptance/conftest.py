"""Real npm servers behind a real Statehold, reached over every transport by clients of three kinds.

Every test runs at a node that owns no session and forwards to the owner; those of the transports also at the owner itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Literal

import pytest
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    Running,
    Way,
    serving,
    statehold,
    structured,
    toml,
)
from support.machines import cluster
from support.selection import matrix
from support.waiting import until

Asked = Literal["owner", "edge"]

WAYS = matrix(
    ("owner", ("stdio", "modern")),
    ("edge", ("http", "modern")),
    ("owner", ("sse", "legacy")),
)
"""Each transport, era and node once: tests of the transports and of forwarding cross them.

The quick selection has no database server, so its way is the one without an edge.
"""
OLDER: list[tuple[Asked, Literal["http", "stdio"]]] = [
    ("edge", "http"),
    ("owner", "stdio"),
]
"""The same for a client on mcp 1.30."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, ways in (("way", WAYS), ("older", OLDER)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(("asked", name), ways, indirect=True, scope="module")
            return
    if "asked" in metafunc.fixturenames:
        metafunc.parametrize("asked", ["edge"], indirect=True, scope="module")


@pytest.fixture(scope="session", autouse=True)
def _fork_server(fork_server: ForkServer) -> None:
    """Use the fork server for all tests here, because they start the same programs many times."""


@pytest.fixture(scope="module")
def settings(everything_command: list[str], memory_command: list[str]) -> JSON:
    """Both behind one Statehold. The memory server stores its data in a separate folder for each session."""

    def service(command: list[str], **options: object) -> JSON:
        return {"command": command[0], "args": command[1:], **options}

    return {
        "services": {
            "everything": service(everything_command),
            "memory": service(memory_command, env={"MEMORY_FILE_PATH": "{dir}/memory.json"}),
        }
    }


@pytest.fixture(scope="module")
def asked(request: pytest.FixtureRequest) -> Asked:
    """The node that clients call: the owner of the sessions, or one that owns none."""
    return request.param


@pytest.fixture(scope="module")
def database(asked: Asked, request: pytest.FixtureRequest) -> str | None:
    """The URL of the database that the two nodes share."""
    return request.getfixturevalue("postgresql").fresh() if asked == "edge" else None


@pytest.fixture(scope="module")
def config_file(
    settings: JSON, database: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Path]:
    """The settings of the node that clients call. The owner behind it runs as long."""
    folder = tmp_path_factory.mktemp("config")
    path = folder / "statehold.toml"
    if database is None:
        path.write_text(toml(settings))
        yield path
        return
    path.write_text(toml({**settings, **cluster(database, capacity=0)}))
    owner = folder / "owner.toml"
    owner.write_text(toml({**settings, **cluster(database)}))
    with serving(owner, tmp_path_factory.mktemp("owner")):
        yield path


@pytest.fixture(scope="module")
def server(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """A `statehold serve` for the whole module."""
    with serving(config_file, tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def way(
    request: pytest.FixtureRequest,
    config_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Way:
    """Each way of the SDK's client: over HTTP and SSE to one server, over stdio to one that it starts."""
    transport, era = request.param
    url = "" if transport == "stdio" else request.getfixturevalue("server").url
    return Way(transport, era, config_file, tmp_path_factory.mktemp("stdio"), url=url)


@pytest.fixture(scope="module")
def older(
    request: pytest.FixtureRequest,
    config_file: Path,
    server: Running,
    tmp_path_factory: pytest.TempPathFactory,
) -> JSON:
    """How a client on mcp 1.30 connects, for each transport."""
    if request.param == "stdio":
        data = tmp_path_factory.mktemp("stdio")
        return {"command": [*statehold(), "--config", str(config_file), "--data", str(data)]}
    path = "/mcp" if request.param == "http" else "/sse"
    return {"url": server.url + path, "transport": request.param}


@pytest.fixture
def in_flight(
    server: Running, config_file: Path, tmp_path: Path
) -> Callable[[str, int], Awaitable[None]]:
    """`await in_flight(session, n)` waits until the session has n calls in flight."""
    way = Way("http", "modern", config_file, tmp_path, url=server.url)

    async def reached(session: str, calls: int) -> None:
        async with way.connect() as client:

            async def are_in_flight() -> bool:
                info = await client.call_tool("session_info", {"session_id": session})
                return structured(info)["in_flight"] == calls

            await until(are_in_flight)

    return reached
