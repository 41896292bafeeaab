"""The connections of a process to another node."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import anyio
import pytest
import uvloop
from support.selection import matrix
from support.waiting import until

from statehold.server.cluster.assertion import Assertion, Assertions, NodeRequest
from statehold.server.cluster.node_connection import NodeConnection
from statehold.server.cluster.node_dialer import UnixDialer
from statehold.server.cluster.node_pool import MAX_CONNECTIONS, Peers
from statehold.server.sockets.address import claim_socket, remove_socket
from statehold.sessions.records import Principal

NODE = "n_one"
ADA, BOB = Principal(subject="ada"), Principal(subject="bob")


@asynccontextmanager
async def node(folder: Path) -> AsyncGenerator[list[bytes]]:
    """Answer as a node that begins every request and ends those for `/quick` alone. Yields the paths of the requests."""
    begun: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):
            await reader.readline()
            while request := await reader.readline():
                while await reader.readline() != b"\r\n":
                    pass
                begun.append(request.split()[1])
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                if begun[-1] == b"/quick":
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    path = claim_socket(folder, NODE)
    async with await asyncio.start_unix_server(serve, os.fspath(path), backlog=1024):
        yield begun
    remove_socket(folder, NODE)


@pytest.mark.parametrize("number", matrix(MAX_CONNECTIONS, 3 * MAX_CONNECTIONS))
async def test_the_requests_of_one_principal_keep_no_other_one_waiting(
    number: int, tmp_path: Path
) -> None:
    peers = Peers(UnixDialer(tmp_path))

    async def send(path: str, principal: Principal) -> int:
        request = NodeRequest("POST", path, (), b"")
        async with peers.exchange(NODE, request, Assertion(principal)) as connection:
            status, _ = await connection.head()
            return status

    async with node(tmp_path) as begun:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(number):
                    tasks.start_soon(send, "/slow", BOB)
                await until(lambda: len(begun) >= MAX_CONNECTIONS // 2)
                for _ in range(3):
                    assert await send("/quick", ADA) == 204
                assert begun.count(b"/slow") < MAX_CONNECTIONS
                tasks.cancel_scope.cancel()
        await peers.aclose()


def test_a_node_that_does_not_begin_is_given_up_by_a_timer_that_fires_early() -> None:
    """uvloop calls one timer in eight up to a millisecond before its time."""

    async def wait(seconds: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            _, connection = await asyncio.get_running_loop().create_unix_connection(
                lambda: NodeConnection(NODE, Assertions()), sock=ours
            )
            connection.send(NodeRequest("POST", "/", (), b""), Assertion(ADA))
            with pytest.raises(TimeoutError):
                await connection.wait_begun(seconds)
            connection.abort()

    async def wait_for_all() -> None:
        with anyio.fail_after(30):
            for number in range(100):
                await wait(0.0105 + number / 1e5)

    uvloop.run(wait_for_all())
