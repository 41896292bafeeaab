"""The settings of a cluster: what they need, where its keys come from, and which addresses they admit."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.settings import refused, toml

from statehold.access.config.types import ConfigError
from statehold.server.config.load import load
from statehold.server.config.model import Config
from statehold.server.gateway.stores import cluster_keys, store_of

KEY = "a-key-of-at-least-32-characters-1"
STORE = "[store]\nurl = 'postgresql://ada@db/statehold'\n"


def cluster(folder: Path, text: str, store: str = STORE, **environ: str) -> Config:
    path = toml(folder, f"{store}[cluster]\nenabled = true\n{text}")
    return load(config=path, environ=environ)


def refuse(folder: Path, text: str) -> str:
    return refused(config=toml(folder, text))


def test_keys_come_from_variables_and_a_file_and_the_first_one_signs(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"\n{KEY}-old\n{KEY}-older\n")
    (tmp_path / "keys").chmod(0o600)
    text = "keys = ['${NEW_KEY}']\nkeys_file = 'keys'\n"
    config = cluster(tmp_path, text, NEW_KEY=KEY)
    assert cluster_keys(config) == [KEY.encode(), f"{KEY}-old".encode(), f"{KEY}-older".encode()]
    assert KEY not in repr(config)


def test_a_cluster_needs_postgresql_and_keys(tmp_path: Path) -> None:
    without_store = refuse(tmp_path, f"[cluster]\nenabled = true\nkeys = ['{KEY}']\n")
    assert "cluster.enabled" in without_store
    assert "store.url" in without_store
    assert "cluster.keys" in refuse(tmp_path, f"{STORE}[cluster]\nenabled = true\n")
    mysql = cluster(tmp_path, f"keys = ['{KEY}']", store="[store]\nurl = 'mysql://ada@db/x'\n")
    with pytest.raises(ConfigError, match=r"cluster\.enabled: .*PostgreSQL"):
        store_of(mysql)


def test_a_short_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    message = refuse(tmp_path, f"{STORE}[cluster]\nenabled = true\nkeys = ['hush-hush']\n")
    assert "cluster.keys" in message
    assert "hush-hush" not in message
    (tmp_path / "keys").touch(0o600)
    for weak in ("hush-hush", "hush" * 20, "0123456789abcdef" * 2):
        (tmp_path / "keys").write_text(f"{KEY}\n{weak}\n")
        with pytest.raises(ConfigError, match=r"cluster\.keys_file") as caught:
            cluster_keys(cluster(tmp_path, "keys_file = 'keys'"))
        assert weak not in str(caught.value)
    with pytest.raises(ConfigError, match=r"cluster\.keys"):
        cluster_keys(cluster(tmp_path, f"keys = ['{'k' * 32}']"))


def test_a_file_of_keys_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n")
    for mode in (0o644, 0o640, 0o604):
        (tmp_path / "keys").chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            cluster_keys(cluster(tmp_path, "keys_file = 'keys'"))


def test_addresses_outside_the_networks_are_not_admitted(tmp_path: Path) -> None:
    settings = cluster(tmp_path, f"keys = ['{KEY}']\nnetworks = ['10.1.0.0/16', '::1/128']").cluster
    assert [settings.admits(a) for a in ("10.1.2.3", "::1", "10.2.0.1", "db.example")] == [
        *(True, True, False, False)
    ]
    message = refuse(tmp_path, "[cluster]\nnetworks = ['10.1.2.3/8']\n")
    assert "cluster.networks" in message


def test_the_capacity_of_a_node_is_its_limit_of_live_sessions_by_default(
    tmp_path: Path,
) -> None:
    assert Config().node_capacity == 100
    edge = cluster(tmp_path, f"keys = ['{KEY}']\ncapacity = 0")
    assert edge.node_capacity == 0
