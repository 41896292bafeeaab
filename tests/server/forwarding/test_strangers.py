"""Programs without a key of the cluster at the peer port cause no traceback and few log lines, and take few connections."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio.abc import SocketStream

from statehold.server.cluster.assertion import SignedAssertions
from statehold.server.cluster.node_dialer import ClusterDialer, NodeUnreachable, UnixDialer
from statehold.server.cluster.node_server import NodeServer
from statehold.server.cluster.owner import Owner, OwnerServer
from statehold.server.cluster.peer_port import MAX_HANDSHAKES_OF_ADDRESS, open_peer_port
from statehold.server.cluster.tcp import split_address
from statehold.sessions.records import NodeRecord
from statehold.sessions.registry import Registry

KEY = b"a-key-of-the-tests-with-32-characters"
ASSERTION = {"from": "a", "to": "n", "id": "x", "begin_before": 1, "body": "y"}

HEADERS = [
    b"",
    b"[" * 1000,
    b'{"a":' * 150 + b"1" + b"}" * 150 + b" y",
    b'{"from":"a","to":"n","id":"x","begin_before":1e400} y',
    b'{"from":"a","to":"n","id":"x","begin_before":Infinity} y',
    b'{"from":"a","to":"n","id":"x","begin_before":1' + b"0" * 500 + b"} y",
    b'{"from":"a","to":"n","id":"\\ud800","begin_before":1} \\ud800',
    json.dumps({**ASSERTION, "begin_before": [[[]]]}).encode() + b" y",
    json.dumps(ASSERTION).encode() + b" \xff\xfe",
]
BYTES = [
    *(b"GET /node HTTP/1.1\r\nhost: n\r\nstatehold-assertion: " + h + b"\r\n\r\n" for h in HEADERS),
    b"POST /node/requests HTTP/1.1\r\nhost: n\r\ncontent-length: 99999999\r\n\r\n" + b"x" * 9000,
    b"GET /node HTTP/1.1\r\nhost: n\r\nx: " + b"y" * 9000,
    b"GET /node HTTP/9.9\r\n\r\n",
    b"\xff\xfe\n",
    b"x" * 2000,
    b"\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


def _assertions(node: str) -> SignedAssertions:
    return SignedAssertions(node, [KEY], time.time)


@asynccontextmanager
async def _served() -> AsyncGenerator[str]:
    """The address of a peer port that serves the node `n`."""
    port = await open_peer_port("127.0.0.1:0", "", "")
    server = NodeServer(
        Owner(cast("Registry", None), cast("OwnerServer", None)).application(_assertions("n"))
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(port.accept, server, tasks)
        yield port.address
        server.close()
        tasks.cancel_scope.cancel()
    port.close()


async def _connect(address: str) -> SocketStream:
    host, port = split_address(address)
    return await anyio.connect_tcp(host, port or 0)


async def _rest(stream: SocketStream) -> bytes:
    data = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            data += await stream.receive()
    return data


async def test_bytes_of_strangers_cause_no_traceback_and_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with _served() as address:
        for sent in BYTES * 2:
            async with await _connect(address) as stream:
                with anyio.fail_after(20), suppress(anyio.BrokenResourceError):
                    await stream.send(sent)
                    await stream.send_eof()
                    assert await _rest(stream) == b""
    assert not any(record.exc_info for record in caplog.records)
    assert len([record for record in caplog.records if record.levelno >= logging.INFO]) == 1


async def test_connections_of_strangers_are_few_and_nodes_are_admitted_after_them(
    tmp_path: Path,
) -> None:
    async with _served() as address, AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(await _connect(address))
            for _ in range(MAX_HANDSHAKES_OF_ADDRESS)
        ]
        with anyio.fail_after(20):
            async with await _connect(address) as refused:
                assert await _rest(refused) == b""
            for stream in silent:
                await stream.aclose()
            while True:
                with suppress(NodeUnreachable):
                    node = await _dialer(address, tmp_path).connect("n")
                    node.close()
                    break


def _dialer(address: str, folder: Path) -> ClusterDialer:
    async def find(node: str) -> NodeRecord:
        return NodeRecord(id=node, proof_key="", started_at=0, peer=address)

    unix = UnixDialer(folder)
    return ClusterDialer(unix, _assertions("m"), find, lambda host: True)
