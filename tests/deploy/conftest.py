"""Two Statehold processes on one data folder, behind each of the proxies whose files are in deploy/."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from support.fork_server import ForkServer
from support.gateway_process import JSON, Era, Running, Transport, Way, service, serving, toml
from support.reverse_proxies import StartProxy


@pytest.fixture(scope="session", autouse=True)
def _fork_server(fork_server: ForkServer) -> None:
    """Start the nodes as forks of one process."""


@pytest.fixture(scope="module", params=["nginx", "haproxy"])
def start_proxy(request: pytest.FixtureRequest) -> StartProxy:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of the upstream's calls."""
    return tmp_path_factory.mktemp("log") / "calls.jsonl"


@pytest.fixture(scope="module")
def settings(log: Path) -> JSON:
    return {
        "server": {"trusted_proxies": ["127.0.0.1"]},
        "services": {"stepping": service("stepping", "--log", str(log))},
    }


@pytest.fixture(scope="module")
def config_file(settings: JSON, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "statehold.toml"
    path.write_text(toml(settings))
    return path


@pytest.fixture(scope="module")
def nodes(
    config_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[Running, Running]]:
    data = tmp_path_factory.mktemp("shared")
    with serving(config_file, data) as first, serving(config_file, data) as second:
        yield first, second


@pytest.fixture(scope="module")
def proxy(
    start_proxy: StartProxy,
    nodes: tuple[Running, Running],
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[str]:
    """The URL of a proxy in front of both nodes."""
    folder = tmp_path_factory.mktemp("proxy") / "files"
    with start_proxy(folder, [port_of(node.url) for node in nodes]) as url:
        yield url


WAYS: list[tuple[Transport, Era]] = [("http", "modern"), ("http", "legacy"), ("sse", "legacy")]


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest, proxy: str, config_file: Path) -> Way:
    """A real client of each protocol era and HTTP transport, through the proxy."""
    transport, era = request.param
    return Way(transport, era, config_file, config_file.parent, url=proxy)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])
