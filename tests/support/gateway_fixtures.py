"""One Statehold per test module, reached in this process in both protocol eras.

A module whose tests are about transports sets `WAYS`. One that needs other services overrides `settings`. Sessions isolate
its tests from one another.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp import Client

from statehold.server.config.load import load
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol.server import StateholdServer
from support.fork_server import ForkServer
from support.gateway_process import IN_PROCESS, JSON, Running, Way, service, serving, toml
from support.selection import matrix

T = TypeVar("T")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file in which the upstream logs each call before it runs it."""
    return tmp_path / "upstream.jsonl"


@pytest.fixture(scope="session", autouse=True)
def use_fork_server(fork_server: ForkServer) -> None:
    """Use the fork server for all tests here, because they start the same programs many times."""


@pytest.fixture(scope="session")
def forked_servers(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with which each `statehold serve` that a program starts is forked from the fork server."""
    folder = tmp_path_factory.mktemp("forked_servers")
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'serve' in sys.orig_argv:\n"
        "    program = sys.orig_argv[sys.orig_argv.index('-m'):]\n"
        f"    os.execv(sys.executable, [*{fork_server.command()!r}, *program])\n"
    )
    return str(folder)


@pytest.fixture(scope="module")
def settings() -> JSON:
    """The settings of this module's Statehold."""
    return {"services": {"quick": service("asking")}}


@pytest.fixture(scope="module")
def config_file(settings: JSON, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "statehold.toml"
    path.write_text(toml(settings))
    return path


@pytest.fixture(scope="module")
async def gateway(
    config_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Gateway]:
    """A gateway in this process."""
    flags = {"data": str(tmp_path_factory.mktemp("memory"))}
    config = load(config=config_file, services=None, flags=flags)
    async with open_gateway(config, address="tests") as opened:
        yield opened


@pytest.fixture(scope="module")
async def mcp_server(gateway: Gateway) -> StateholdServer:
    return StateholdServer(gateway, version="0.0.0")


def _said(request: pytest.FixtureRequest, name: str, otherwise: T) -> T:
    """Return a constant that the test module defines, or `otherwise`."""
    module: object = getattr(request, "module")  # noqa: B009 - its type is not known
    return getattr(module, name, otherwise)


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, config_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    """A `statehold serve` process; with AS_INSTALLED in the test module, it is started as installed."""
    as_installed = _said(request, "AS_INSTALLED", False)
    with serving(
        config_file, tmp_path_factory.mktemp("http"), as_installed=as_installed
    ) as running:
        yield running


def way_of(request: pytest.FixtureRequest, transport: Any, era: Any) -> Way:
    """Return one transport and era, and start the server that it needs."""
    folder: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    way = Way(transport, era, request.getfixturevalue("config_file"), folder.mktemp("stdio"))
    if transport == "stdio":
        return way
    if transport == "memory":
        way.mcp_server = request.getfixturevalue("mcp_server")
    else:
        way.url = request.getfixturevalue("server").url
    return way


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module: object = getattr(metafunc, "module")  # noqa: B009 - its type is not known
    if "way" in metafunc.fixturenames and not hasattr(module, "way"):
        ways = getattr(module, "WAYS", IN_PROCESS)
        metafunc.parametrize("way", ways, indirect=True, ids="-".join, scope="module")


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest) -> Way:
    """Each of the module's transports and eras, one after the other."""
    return way_of(request, *request.param)


@pytest.fixture(scope="module")
async def client(way: Way, gateway: Gateway) -> AsyncGenerator[Client]:
    """A connection over this transport that all tests of the module share. It ends before the gateway does."""
    async with way.connect() as connected:
        yield connected


@pytest.fixture(scope="module", params=matrix("modern", "legacy"))
def http(request: pytest.FixtureRequest) -> Way:
    """Streamable HTTP, in both eras."""
    return way_of(request, "http", request.param)


@pytest.fixture(scope="module", params=["modern", "legacy"])
def memory(request: pytest.FixtureRequest) -> Way:
    """In this process, in both eras."""
    return way_of(request, "memory", request.param)


__all__ = [
    "client",
    "config_file",
    "forked_servers",
    "gateway",
    "http",
    "log",
    "mcp_server",
    "memory",
    "pytest_generate_tests",
    "server",
    "settings",
    "use_fork_server",
    "way",
]
