"""A data folder whose background server ends with the test."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from support.gateway_process import JSON, toml
from support.shared_clients import SharedClients


@pytest.fixture
def shared(settings: JSON, tmp_path: Path) -> Generator[SharedClients]:
    """A data folder of the test's own. Its server ends after the test, and has to leave nothing behind."""
    config = tmp_path / "statehold.toml"
    config.write_text(toml(settings))
    clients = SharedClients(config, tmp_path / "data")
    yield clients
    clients.stop()


@pytest.fixture(scope="module")
def running(
    settings: JSON, forked_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[SharedClients]:
    """A data folder for the tests of a module, which share its server; it is forked from the fork server."""
    folder = tmp_path_factory.mktemp("shared")
    config = folder / "statehold.toml"
    config.write_text(toml(settings))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PYTHONPATH", forked_servers)
        clients = SharedClients(config, folder / "data", {"PYTHONPATH": forked_servers})
        yield clients
        clients.stop()
