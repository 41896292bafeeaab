"""One Statehold for all tests of the client, and the client's three ways to connect to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from support.fork_server import ForkServer
from support.gateway_process import JSON, MODULE, Running, service, serving, toml
from support.selection import matrix

from statehold.client import Client, connect

Connect: TypeAlias = Callable[..., Client]
"""`connect` of the client with the address or configuration filled in."""


@pytest.fixture(scope="session", autouse=True)
def _fork_server(fork_server: ForkServer) -> None:
    """Use the fork server for all tests here, because they start the same programs many times."""


@pytest.fixture(scope="session")
def settings() -> JSON:
    return {
        "toolsets": ["core", "lifecycle", "state", "history", "branch", "admin"],
        "services": {
            "quick": service("asking"),
            "other": service("asking", prefix="other_"),
            "own": service("asking", "--own-session", include=["own_session"]),
        },
    }


@pytest.fixture(scope="session")
def config_file(settings: JSON, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "statehold.toml"
    path.write_text(toml(settings))
    return path


@pytest.fixture(scope="session")
def server(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    with serving(config_file, tmp_path_factory.mktemp("http")) as running:
        yield running


@pytest.fixture(scope="module", params=matrix("http", "stdio", "embedded"))
def way(
    request: pytest.FixtureRequest,
    config_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
    fork_server: ForkServer,
) -> Connect:
    """Each way to connect, one after the other."""
    # Not at the first connection, which may be part of a test that counts processes.
    url = request.getfixturevalue("server").url if request.param == "http" else None

    def connected(**options: Any) -> Client:
        if url is not None:
            return connect(url, **options)
        if request.param == "embedded":
            return connect(config=config_file, **options)
        arguments = ["--config", str(config_file), "--data", str(tmp_path_factory.mktemp("stdio"))]
        return connect(stdio=[*fork_server.command(*MODULE), *arguments], **options)

    return connected


@pytest.fixture(scope="module")
async def client(way: Connect) -> AsyncGenerator[Client]:
    """A connection of this kind that all tests of the module share."""
    async with way() as connected:
        yield connected


@pytest.fixture(scope="module")
async def embedded(config_file: Path) -> AsyncGenerator[Client]:
    """A Statehold in this process."""
    async with connect(config=config_file) as connected:
        yield connected
