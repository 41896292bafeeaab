"""Statehold processes as nodes on several machines: one database, and for each node a data folder of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.cluster_nodes import KEY, LEASE_SECONDS, Start
from support.databases import PostgreSQL
from support.gateway_process import JSON, Running, service, serving, toml


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file in which the upstreams of all nodes log each call before they run it."""
    return tmp_path / "calls.jsonl"


@pytest.fixture
def url(postgresql: PostgreSQL) -> str:
    return postgresql.fresh()


@pytest.fixture
def start(url: str, log: Path, tmp_path: Path) -> Start:
    """Starts nodes on one database; see Start."""

    def run(
        name: str, *, store: str = url, more: JSON | None = None, **cluster: object
    ) -> AbstractContextManager[Running]:
        settings: JSON = {
            "timeouts": {"close_grace": 1, "idle": 600},
            "store": {"url": store},
            "cluster": {
                "enabled": True,
                "keys": [KEY],
                "lease_seconds": LEASE_SECONDS,
                **cluster,
            },
            "services": {"quick": service("quick", "--log", str(log))},
            **(more or {}),
        }
        config = tmp_path / f"{name}.toml"
        config.write_text(toml(settings))
        return serving(config, tmp_path / name)

    return run
