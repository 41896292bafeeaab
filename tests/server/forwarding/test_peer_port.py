"""The peer port of a node: what reaches it, and whom it answers. A relay keeps the traffic of two real nodes."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from sqlalchemy import text
from support.databases import PostgreSQL
from support.gateway_process import (
    JSON,
    Way,
    code_of,
    count,
    opened_session,
    service,
    serving,
    statehold,
    toml,
)
from support.machines import KEY, cluster, free_port
from support.round_robin import connected
from support.tcp_relay import Relay, relay
from support.token_file import write_tokens

from statehold.server.cluster import tcp
from statehold.server.cluster.assertion import HEADER, Assertion, NodeRequest, SignedAssertions
from statehold.server.cluster.node_connection import ConnectionEnded, NodeConnection
from statehold.server.cluster.node_dialer import ClusterDialer, NodeUnreachable, UnixDialer
from statehold.server.cluster.node_messages import (
    HELLO,
    NOT_OWNER,
    REFUSED,
    REQUESTS,
    ForwardedRequest,
    encode,
    parse,
)
from statehold.server.cluster.peer_port import open_peer_port
from statehold.sessions.records import NodeRecord, Principal

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
WRONG_KEY = "w" * 32


@dataclass
class Machines:
    """Two nodes with a data folder each. The edge reaches the owner through the relay."""

    owner: Way
    edge: Way
    relay: Relay
    port: int
    """The peer port of the owner."""
    node: str
    """The id of the owner."""
    folder: Path

    def client(self, way: Way, token: str = ALICE) -> AbstractAsyncContextManager[Client]:
        return way.connect(headers={"Authorization": f"Bearer {token}"})

    @asynccontextmanager
    async def member(
        self, *, key: str = KEY, late: float = 0.0, node: str | None = None
    ) -> AsyncGenerator[NodeConnection]:
        """A connection to the owner of another node of the cluster, which the test is; its clock is `late`."""
        record = NodeRecord(id="", proof_key="", started_at=0, peer=f"127.0.0.1:{self.port}")

        async def find(node: str) -> NodeRecord:
            return record

        dialer = ClusterDialer(
            UnixDialer(self.folder), signing(key, late), find, lambda address: True
        )
        with anyio.fail_after(20):
            connection = await dialer.connect(node or self.node)
            yield connection
            connection.close()

    async def answer_to(self, *sent: bytes) -> bytes:
        """Return the end of what the owner answers to bytes until it closes the connection: after `100 Continue`."""
        loop, answer = asyncio.get_running_loop(), b""
        connection = await tcp.connect(f"127.0.0.1:{self.port}", lambda address: True)
        # The connection is reset when the owner closes it before it has read everything.
        with connection, anyio.fail_after(20), suppress(ConnectionError):
            for part in sent:
                await loop.sock_sendall(connection, part)
            while part := await loop.sock_recv(connection, 1 << 16):
                answer += part
        return answer

    def hello(self) -> bytes:
        """The first request of a node."""
        return self.head("GET", HELLO, signing().sign(self.node, HELLO_REQUEST, Assertion()), b"")

    @staticmethod
    def head(method: str, path: str, header: bytes, body: bytes) -> bytes:
        length = b"content-length: %d\r\n" % len(body)
        line = f"{method} {path} HTTP/1.1\r\nhost: node\r\n".encode()
        return line + length + HEADER + b": " + header + b"\r\n\r\n" + body


HELLO_REQUEST = NodeRequest("GET", HELLO, (), b"")


async def answer_of(connection: NodeConnection) -> tuple[int, JSON]:
    """The status of an answer, and its last message."""
    status, _ = await connection.head()
    message: JSON = {}
    while line := await connection.read_line():
        message = parse(line)
    return status, message


def signing(key: str = KEY, late: float = 0.0) -> SignedAssertions:
    return SignedAssertions("n_test", [key.encode()], lambda: time.time() - late)


@pytest.fixture(scope="module")
def machines(
    postgresql: PostgreSQL, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Machines]:
    folder, url, port = tmp_path_factory.mktemp("machines"), postgresql.fresh(), free_port()
    tokens = folder / "tokens"
    write_tokens(tokens, f"{ALICE} alice\n{BOB} bob\n")

    def config(name: str, **settings: Any) -> Path:
        path = folder / f"{name}.toml"
        services: JSON = {"counter": service("counter", sandbox="off")}
        server: JSON = {"tokens": str(tokens)}
        document = {"server": server, "services": services, **cluster(url, **settings)}
        path.write_text(toml(document))
        return path

    with relay() as passing:
        passing.target = port
        listening: JSON = {
            "listen": f"127.0.0.1:{port}",
            "advertise": f"127.0.0.1:{passing.port}",
        }
        files = config("owner", **listening), config("edge", capacity=0)
        with serving(files[0], folder / "a") as owner, serving(files[1], folder / "b") as edge:
            with postgresql.connection(url) as database:
                query = text("SELECT id FROM node WHERE peer = :peer")
                node = database.scalar(query, {"peer": f"127.0.0.1:{passing.port}"})
            ways = [
                Way("http", "modern", files[0], folder, url=running.url)
                for running in (owner, edge)
            ]
            yield Machines(ways[0], ways[1], passing, port, str(node), folder / "c")


@dataclass(frozen=True)
class Recorded:
    """A call that the edge has passed on: its session, and the request that it has sent."""

    session: str
    client: Client
    """A client of the owner."""
    sent: bytes
    request: ForwardedRequest
    assertion: Assertion

    async def count(self) -> int:
        return await count(self.client, self.session)


_REQUEST = re.compile(
    rb"POST (\S+) HTTP/1\.1\r\n(?:[^\r]+\r\n)*?content-length: (\d+)\r\n(?:[^\r]+\r\n)*\r\n"
)


@pytest.fixture
async def recorded(machines: Machines) -> AsyncGenerator[Recorded]:
    async with machines.client(machines.owner) as client, machines.client(machines.edge) as other:
        session = await opened_session(client)
        await client.call_tool("inc", {"session_id": session})
        assert await count(other, session) == 2
        requests = [
            (sent[match.start() : match.end() + int(match[2])], match)
            for sent in map(bytes, machines.relay.sent)
            for match in _REQUEST.finditer(sent)
        ]
        raw, match = next(one for one in reversed(requests) if session.encode() in one[0])
        assert match[1].decode() == REQUESTS
        request = ForwardedRequest.parse(raw[match.end() - match.start() :])
        header = re.search(HEADER + rb": (.+) [0-9a-f]+\r\n", raw)
        assert header is not None
        fields = parse(header[1])
        principal = Principal.model_validate(fields["principal"])
        assertion = Assertion(principal, fields["namespace"], session, fields["epoch"])
        yield Recorded(session, client, raw, request, assertion)
        # With many sessions more than the edge, the owner would place the next one there.
        await client.call_tool("session_close", {"session_id": session})


@pytest.mark.thorough
async def test_a_node_of_the_cluster_is_answered(machines: Machines, recorded: Recorded) -> None:
    async with machines.member() as connection:
        for expected in (3, 4):
            connection.send(recorded.request.to_request(), recorded.assertion)
            status, message = await answer_of(connection)
            assert status == 200
            assert message["result"]["structuredContent"]["count"] == expected


@pytest.mark.thorough
async def test_the_token_of_the_caller_stays_at_the_node_that_was_asked(
    machines: Machines, recorded: Recorded
) -> None:
    traffic = b"".join([*machines.relay.sent, *machines.relay.received])
    assert recorded.session.encode() in traffic
    assert b'"alice"' in traffic
    assert ALICE.encode() not in traffic
    assert KEY.encode() not in traffic


@pytest.mark.thorough
async def test_the_token_of_a_legacy_client_stays_there_too(machines: Machines) -> None:
    urls = [machines.owner.url, machines.edge.url]
    headers = {"Authorization": f"Bearer {ALICE}", "Cookie": "a-secret-cookie"}
    async with connected(urls, "http", headers=headers) as client:
        session = await opened_session(client)
        assert [await count(client, session) for _ in range(4)] == [1, 2, 3, 4]
        await client.call_tool("session_close", {"session_id": session})
    traffic = b"".join([*machines.relay.sent, *machines.relay.received])
    assert b"POST /mcp HTTP/1.1" in traffic
    assert ALICE.encode() not in traffic
    assert b"a-secret-cookie" not in traffic


@pytest.mark.thorough
async def test_a_recorded_connection_is_not_answered_again(
    machines: Machines, recorded: Recorded
) -> None:
    for sent in machines.relay.sent:
        assert await machines.answer_to(bytes(sent)) == b""
    assert await recorded.count() == 3


async def test_a_recorded_request_does_not_run_again(
    machines: Machines, recorded: Recorded
) -> None:
    answer = await machines.answer_to(machines.hello(), recorded.sent)
    assert answer.count(b"HTTP/1.1") == 1
    assert await recorded.count() == 3


@pytest.mark.thorough
async def test_a_changed_request_is_refused(machines: Machines, recorded: Recorded) -> None:
    fresh = machines.head(
        "POST",
        REQUESTS,
        signing().sign(machines.node, recorded.request.to_request(), recorded.assertion),
        recorded.request.to_request().body,
    )
    changes = [
        fresh.replace(b'"alice"', b'"bob"'),
        fresh.replace(b"POST /node/requests", b"POST /node/requestz"),
        fresh.replace(b"host: node\r\n", b"host: node\r\nmcp-session-id: a\r\n"),
        fresh.replace(
            b'"session_id":"' + recorded.session.encode(), b'"session_id":"sh_' + b"a" * 26
        ),
    ]
    assert fresh not in changes
    for changed in changes:
        answer = await machines.answer_to(machines.hello(), changed)
        assert answer.count(b"HTTP/1.1") == 1
    # The body is checked after the request has begun.
    body = fresh.replace(b'"counter"', b'"cOunter"').replace(b'"inc"', b'"dec"')
    assert body != fresh
    answer = await machines.answer_to(machines.hello(), body)
    assert answer.count(b"HTTP/1.1") == 1
    assert await recorded.count() == 3


@pytest.mark.thorough
async def test_a_node_with_another_key_or_clock_or_goal_is_refused(machines: Machines) -> None:
    with pytest.raises(NodeUnreachable):
        async with machines.member(key=WRONG_KEY):
            pass
    with pytest.raises(NodeUnreachable):
        async with machines.member(late=60):
            pass
    with pytest.raises(NodeUnreachable):
        async with machines.member(late=-60):
            pass
    with pytest.raises(NodeUnreachable):
        async with machines.member(node="n_other"):
            pass


@pytest.mark.thorough
async def test_the_session_of_another_principal_is_unknown(
    machines: Machines, recorded: Recorded
) -> None:
    bob = Principal(issuer=recorded.assertion.principal.issuer, subject="bob")
    async with machines.member() as connection:
        connection.send(recorded.request.to_request(), replace(recorded.assertion, principal=bob))
        _, message = await answer_of(connection)
        assert message["result"]["_meta"]["statehold/error"]["code"] == "session_not_found"
    async with machines.client(machines.edge, BOB) as client:
        refused = await client.call_tool("inc", {"session_id": recorded.session})
        assert code_of(refused) == "session_not_found"
    assert await recorded.count() == 3


@pytest.mark.thorough
async def test_a_request_of_another_version_is_served_or_refused(
    machines: Machines, recorded: Recorded
) -> None:
    sent = recorded.request.to_request()
    members = parse(sent.body)
    async with machines.member() as connection:
        for more, status in (
            ({"is_shared": True}, 200),
            ({"can_ask": False, "pin": None, "is_shared": False}, 200),
            ({"restricted_to": ["get"]}, REFUSED),
        ):
            body = encode({**members, **more})
            connection.send(replace(sent, body=body), recorded.assertion)
            assert (await answer_of(connection))[0] == status
    assert await recorded.count() == 5


def test_a_request_has_no_member_that_an_earlier_version_does_not_need() -> None:
    plain = ForwardedRequest("tools/list", None, version="2025-11-25")
    assert parse(plain.to_request().body) == {
        "method": "tools/list",
        "params": None,
        "version": "2025-11-25",
    }
    # An earlier version takes the key of a sharee for true.
    shared = replace(plain, is_shared=":ben")
    assert parse(shared.to_request().body)["is_shared"] == ":ben"
    assert shared.sharee == ":ben"
    assert (replace(plain, is_shared=True).sharee, plain.sharee) == ("", None)


@pytest.mark.thorough
async def test_a_request_for_another_epoch_or_session_is_not_begun(
    machines: Machines, recorded: Recorded
) -> None:
    assertion = recorded.assertion
    assert assertion.epoch > 0
    async with machines.member() as connection:
        for refused in (
            replace(assertion, epoch=assertion.epoch + 1),
            replace(assertion, session_id="sh_" + "a" * 26),
        ):
            connection.send(recorded.request.to_request(), refused)
            assert await answer_of(connection) == (NOT_OWNER, {})
    assert await recorded.count() == 3


async def test_a_request_that_comes_late_is_not_begun(
    machines: Machines, recorded: Recorded
) -> None:
    request = recorded.request.to_request()
    header = signing(late=4).sign(machines.node, request, recorded.assertion)
    late = machines.head("POST", REQUESTS, header, request.body)
    assert (await machines.answer_to(machines.hello(), late)).count(b"HTTP/1.1") == 1
    assert await recorded.count() == 3


@pytest.mark.thorough
async def test_a_node_takes_on_the_sessions_that_another_one_passes_on(
    machines: Machines, recorded: Recorded
) -> None:
    params: JSON = {"name": "session_create", "arguments": {}}
    params["_meta"] = (recorded.request.params or {})["_meta"]
    create = replace(recorded.request, params=params).to_request()
    adopt = replace(recorded.assertion, session_id="", epoch=0, adopt=True)
    async with machines.member() as connection:
        connection.send(create, adopt)
        _, message = await answer_of(connection)
        session = message["result"]["structuredContent"]["session_id"]
        call: JSON = {**params, "name": "inc", "arguments": {"session_id": session}}
        request = replace(recorded.request, params=call).to_request()
        connection.send(request, replace(adopt, session_id=session, adopt=False))
        _, message = await answer_of(connection)
        assert message["result"]["structuredContent"]["count"] == 1


@pytest.mark.thorough
async def test_a_node_that_reads_slowly_slows_no_other(
    machines: Machines, recorded: Recorded
) -> None:
    params = recorded.request.params or {}
    big = {**params, "name": "big", "arguments": {"session_id": recorded.session, "kib": 4096}}
    async with machines.member() as connection:
        request = replace(recorded.request, params=big).to_request()
        connection.send(request, recorded.assertion)
        await connection.wait_begun(within=10)
        async with machines.client(machines.edge) as client:
            other = await opened_session(client)
            for expected in (1, 2, 3):
                assert await count(client, other) == expected
                assert await recorded.count() == 2 + expected
        _, message = await answer_of(connection)
        assert message["result"]["content"][0]["text"] == "x" * 4096 * 1024


@pytest.mark.thorough
@pytest.mark.parametrize("body", [b"", b"[]", b'{"method": 1, "unknown": 2}', b"\xff"])
async def test_a_connection_ends_after_a_malformed_request(
    machines: Machines, recorded: Recorded, body: bytes
) -> None:
    async with machines.member() as connection:
        connection.send(NodeRequest("POST", REQUESTS, (), body), recorded.assertion)
        with pytest.raises(ConnectionEnded):
            await answer_of(connection)
    assert await recorded.count() == 3


@asynccontextmanager
async def two_nodes(
    folder: Path, url: str, owner_settings: JSON, edge_settings: JSON
) -> AsyncGenerator[tuple[Client, Client]]:
    """Clients of two nodes with different settings."""
    ways: list[Way] = []
    for name, settings in (("a", owner_settings), ("b", edge_settings)):
        config = folder / f"{name}.toml"
        services: JSON = {"counter": service("counter", sandbox="off")}
        config.write_text(toml({"services": services, **cluster(url, **settings)}))
        ways.append(Way("http", "modern", config, folder / name))
    with (
        serving(ways[0].config, ways[0].data) as owner,
        serving(ways[1].config, ways[1].data) as edge,
    ):
        ways[0].url, ways[1].url = owner.url, edge.url
        async with ways[0].connect() as client, ways[1].connect() as other:
            yield client, other


@pytest.mark.thorough
async def test_nodes_understand_each_other_while_a_key_is_replaced(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    old, new = (f"0123456789-abcdefghij-{age}-key-of-a-test" for age in ("old", "new"))
    url = postgresql.fresh()
    async with two_nodes(tmp_path, url, {"keys": [new, old]}, {"keys": [old, new]}) as clients:
        owner, edge = clients
        session, other = await opened_session(owner), await opened_session(edge)
        for one, opened in ((owner, session), (edge, session), (edge, other), (owner, other)):
            await count(one, opened)
        assert await count(edge, session) == 3
        assert await count(owner, other) == 3


@pytest.mark.thorough
async def test_an_address_outside_of_the_networks_is_not_connected_to(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        advertise: JSON = {"advertise": f"127.0.0.1:{trap.getsockname()[1]}"}
        networks: JSON = {"networks": ["10.0.0.0/8", "::1/128"]}
        url = postgresql.fresh()
        async with two_nodes(tmp_path, url, advertise, networks) as (owner, edge):
            session = await opened_session(owner)
            await count(owner, session)
            refused = await edge.call_tool("inc", {"session_id": session})
            assert code_of(refused) == "session_busy"
            assert await count(owner, session) == 2
        with pytest.raises(BlockingIOError):
            trap.accept()


@pytest.mark.parametrize(
    ("advertise", "database", "expected"),
    [
        ("", "127.0.0.1", "127.0.0.1:{port}"),
        ("node.example", "", "node.example:{port}"),
        ("node.example:7000", "", "node.example:7000"),
        ("[fd00::1]", "", "[fd00::1]:{port}"),
    ],
)
async def test_every_address_is_advertised_as_one(
    advertise: str, database: str, expected: str
) -> None:
    port = await open_peer_port("0.0.0.0:0", advertise, database)
    with closing(port):
        number = port.address.rpartition(":")[2]
        assert port.address == expected.format(port=number)
        assert int(number) > 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"listen": "0.0.0.0:0"}, "cluster.advertise"),
        ({"listen": "127.0.0.1:x"}, "cluster.advertise"),
        ({"listen": "192.0.2.1:0"}, "cluster.listen"),
    ],
)
def test_an_unusable_address_ends_the_start_with_one_line(
    postgresql: PostgreSQL, tmp_path: Path, settings: JSON, key: str
) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml(cluster(postgresql.fresh(), **settings)))
    command = [*statehold(), "serve", "--config", str(config), "--data", str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert key in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
