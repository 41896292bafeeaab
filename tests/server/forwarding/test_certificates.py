"""TLS between the nodes of a cluster: certificates of both sides, of one authority."""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from support.authority import Authority
from support.databases import PostgreSQL
from support.gateway_process import (
    JSON,
    Way,
    count,
    opened_session,
    service,
    serving,
    statehold,
    toml,
)
from support.machines import KEY, cluster, free_port
from support.tcp_relay import relay

from statehold.server.cluster.assertion import SignedAssertions
from statehold.server.cluster.node_dialer import ClusterDialer, NodeUnreachable, UnixDialer
from statehold.server.cluster.peer_port import Certificates
from statehold.server.config.ports import ClusterSettings
from statehold.sessions.records import NodeRecord


def files(authority: Authority, name: str) -> JSON:
    """The settings of a node with a certificate of an authority."""
    certificate, key = authority.sign(name)
    return {
        "certificate": str(certificate),
        "key": str(key),
        "authority": str(authority.certificate),
    }


async def test_nodes_with_certificates_answer_each_other_and_no_other_program(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    url, port = postgresql.fresh(), free_port()
    with relay() as passing:
        passing.target = port
        address: JSON = {
            "listen": f"127.0.0.1:{port}",
            "advertise": f"127.0.0.1:{passing.port}",
        }
        owner = _way(tmp_path, url, "a", {**address, **files(ours, "a")})
        edge = _way(tmp_path, url, "b", {"capacity": 0, **files(ours, "b")})
        with serving(owner.config, owner.data) as first, serving(edge.config, edge.data) as second:
            owner.url, edge.url = first.url, second.url
            async with owner.connect() as client, edge.connect() as other:
                session = await opened_session(client)
                assert await count(client, session) == 1
                assert await count(other, session) == 2
                assert await count(other, session) == 3
            traffic = b"".join(map(bytes, [*passing.sent, *passing.received]))
            assert traffic
            assert session.encode() not in traffic
            assert b"HTTP/1.1" not in traffic
            node = _node(postgresql, url, passing.port)
            async with _member(tmp_path, node, port, files(ours, "c")):
                pass
            for tls in (
                files(others, "d"),
                {**files(others, "e"), "authority": str(ours.certificate)},
                None,
            ):
                with pytest.raises(NodeUnreachable):
                    async with _member(tmp_path, node, port, tls):
                        pass


def _way(folder: Path, url: str, name: str, settings: JSON) -> Way:
    config = folder / f"{name}.toml"
    document = {
        "services": {"counter": service("counter", sandbox="off")},
        **cluster(url, **settings),
    }
    config.write_text(toml(document))
    return Way("http", "modern", config, folder / name)


def _node(postgresql: PostgreSQL, url: str, port: int) -> str:
    with postgresql.connection(url) as database:
        query = text("SELECT id FROM node WHERE peer = :peer")
        return str(database.scalar(query, {"peer": f"127.0.0.1:{port}"}))


@asynccontextmanager
async def _member(
    folder: Path, node: str, port: int, settings: JSON | None
) -> AsyncGenerator[None]:
    """A connection to a node, of a program that has a key of the cluster, and this certificate."""
    assertions = SignedAssertions("n_test", [KEY.encode()], time.time)

    async def find(node: str) -> NodeRecord:
        return NodeRecord(id=node, proof_key="", started_at=0, peer=f"127.0.0.1:{port}")

    tls: ssl.SSLContext | None = None
    if settings is not None:
        certificates = Certificates.read(ClusterSettings(**settings))
        assert certificates is not None
        tls = certificates.client
    unix = UnixDialer(folder / "none")
    dialer = ClusterDialer(unix, assertions, find, lambda address: True, tls)
    with anyio.fail_after(20):
        connection = await dialer.connect(node)
        yield
        connection.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": None}, "certificate, key and authority should be set together"),
        ({"certificate": "none.pem"}, "cluster.certificate"),
        ({"authority": "a.key"}, "cluster.authority"),
        ({"key": "other.key"}, "cluster.key"),
        ({"key": "open.key"}, "chmod 600"),
    ],
)
def test_an_unusable_certificate_ends_the_start_with_one_line(
    postgresql: PostgreSQL, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    authority = Authority(tmp_path, "ours")
    settings = files(authority, "a")
    authority.sign("other")
    (tmp_path / "open.key").write_bytes((tmp_path / "a.key").read_bytes())
    (tmp_path / "open.key").chmod(0o644)
    for name, value in change.items():
        if value is None:
            del settings[name]
        else:
            settings[name] = str(tmp_path / value)
    config = tmp_path / "statehold.toml"
    config.write_text(toml(cluster(postgresql.fresh(), **settings)))
    command = [*statehold(), "serve", "--config", str(config), "--data", str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert words in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
