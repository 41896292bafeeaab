"""The pictures of another node for a viewer that is slower than they come."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from statehold.server.cluster.assertion import Assertion, Assertions, NodeRequest
from statehold.server.cluster.node_connection import ConnectionEnded, NodeConnection
from statehold.server.cluster.node_messages import FRAMES, LENGTH, encode_picture
from statehold.server.cluster.picture_relay import MESSAGE_BYTES, NewestPictures

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def picture(number: int) -> bytes:
    return encode_picture({"state": "live", "number": number}, b"\xff\xd8" * 50_000)


def condition(state: str) -> bytes:
    return encode_picture({"state": state}, b"")


def chunks(content: bytes, size: int = 7_000) -> bytes:
    """Return content in chunks that end anywhere within the messages."""
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


@asynccontextmanager
async def connection_to(response: bytes) -> AsyncGenerator[NodeConnection]:
    """A connection to a node that sends this response, and then closes the connection."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(
        lambda: NodeConnection("n_other", Assertions()), sock=ours
    )

    async def respond() -> None:
        with theirs:
            await loop.sock_sendall(theirs, response)

    responding = asyncio.create_task(respond())
    try:
        connection.send(NodeRequest("POST", FRAMES, (), b"{}"), Assertion())
        assert (await connection.head())[0] == 200
        yield connection
    finally:
        connection.abort()
        await responding


async def test_a_slow_viewer_gets_the_newest_picture_and_what_came_after_it() -> None:
    sent = [*map(picture, range(30)), condition("dialog"), picture(30)]
    sent += [condition("hidden"), condition("unresponsive")]
    async with connection_to(HEAD + chunks(b"".join(sent)) + END) as connection:
        pictures = NewestPictures()
        # Nobody takes them meanwhile, and the other node does not wait.
        await pictures.read_all(connection)
        assert [message async for message in pictures] == [picture(30), condition("unresponsive")]


async def test_a_picture_replaces_what_came_before_it() -> None:
    sent = condition("dialog") + picture(1)
    async with connection_to(HEAD + chunks(sent) + END) as connection:
        pictures = NewestPictures()
        await pictures.read_all(connection)
        assert [message async for message in pictures] == [picture(1)]


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        chunks(picture(2)[:-1]) + END,
        chunks(LENGTH.pack(MESSAGE_BYTES + 1) + bytes(100)),
        chunks(LENGTH.pack(3) + b"abc"),
        b"no chunk\r\n",
    ],
    ids=["none", "cut", "too long", "too short", "no HTTP"],
)
async def test_the_viewer_is_told_that_the_other_node_ended_within_them(rest: bytes) -> None:
    async with connection_to(HEAD + chunks(picture(1)) + rest) as connection:
        pictures = NewestPictures()
        await pictures.read_all(connection)
        assert await anext(pictures) == picture(1)
        with pytest.raises(ConnectionEnded):
            await anext(pictures)
