"""Programs without a key of the cluster at the peer port cause no traceback and few log lines, and take few connections."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketStream

from statehold.server.forwarding.assertion import Assertions
from statehold.server.forwarding.handshake import introduce
from statehold.server.forwarding.messages import ConnectionEnded, MessageConnection
from statehold.server.forwarding.peer_port import HANDSHAKES_OF_ADDRESS, open_peer_port
from statehold.server.forwarding.tcp import connect, split_address

KEY = b"a-key-of-the-tests-with-32-characters"
ASSERTION = {"from": "a", "to": "n", "id": "x", "expires_at": 1, "mac": "y"}

LINES = [
    b"[" * 1000 + b"\n",
    b'{"a":' * 150 + b"1" + b"}" * 150 + b"\n",
    b'{"from":"a","to":"n","id":"x","mac":"y","expires_at":1e400}\n',
    b'{"from":"a","to":"n","id":"x","mac":"y","expires_at":Infinity}\n',
    b'{"from":"a","to":"n","id":"x","mac":"y","expires_at":1' + b"0" * 500 + b"}\n",
    b'{"from":"a","to":"n","id":"\\ud800","mac":"\\ud800","expires_at":1}\n',
    json.dumps({**ASSERTION, "expires_at": [[[]]]}).encode() + b"\n",
    json.dumps(ASSERTION).encode() + b"\n",
    b"\xff\xfe\n",
    b"x" * 2000,
    b"\n",
]


def _assertions(node: str) -> Assertions:
    return Assertions(node, [KEY], time.time)


@asynccontextmanager
async def _served() -> AsyncGenerator[str]:
    """The address of a peer port that serves the node `n`."""
    port = await open_peer_port("127.0.0.1:0", "", "")

    async def serve(connection: MessageConnection) -> None:
        await connection.receive()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(port.accept, _assertions("n"), tasks, serve)
        yield port.address
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


async def test_lines_of_strangers_cause_no_traceback_and_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with _served() as address:
        for line in LINES * 2:
            async with await _connect(address) as stream:
                with anyio.fail_after(20), suppress(anyio.BrokenResourceError):
                    await stream.send(line)
                    await stream.send_eof()
                    assert await _rest(stream) == b""
    records = [record for record in caplog.records if record.name.startswith("statehold")]
    assert not any(record.exc_info for record in records)
    assert len(records) == 1


async def test_connections_of_strangers_are_few_and_nodes_are_admitted_after_them() -> None:
    async with _served() as address, AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(await _connect(address))
            for _ in range(HANDSHAKES_OF_ADDRESS)
        ]
        with anyio.fail_after(20):
            async with await _connect(address) as refused:
                assert await _rest(refused) == b""
            for stream in silent:
                await stream.aclose()
            while True:
                with suppress(OSError, ConnectionEnded):
                    node = await connect(address, lambda host: True)
                    with node:
                        await introduce(node, _assertions("m"), "n")
                        break
