"""The limits of an HTTP request before its body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
import uvicorn
import uvloop
from anyio.abc import SocketStream
from starlette.types import ASGIApp, Receive, Scope, Send
from support.waiting import until
from uvicorn.server import ServerState

from statehold.server.http.bounded_protocol import HOLD_UNSENT, BoundedHttp


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the names of the headers, once the whole body came."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    text = b"%d %s" % (size, b",".join(name for name, _ in scope["headers"]))
    length = (b"content-length", b"%d" % len(text))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": text})


class Hasty(BoundedHttp):
    head_seconds = 0.05


@asynccontextmanager
async def connected(
    kind: type[BoundedHttp] = BoundedHttp, app: ASGIApp = echo
) -> AsyncGenerator[SocketStream]:
    settings, state = uvicorn.Config(app, log_config=None, ws="none"), ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: kind(settings, state, {}), "127.0.0.1", 0
    )
    async with server:
        stream = await anyio.connect_tcp(*server.sockets[0].getsockname())
        async with stream:
            with anyio.fail_after(10):
                yield stream


async def rest(stream: SocketStream) -> bytes:
    """Return all bytes that arrive until the server closes the connection."""
    data = b""
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


async def pour(stream: SocketStream, piece: bytes) -> None:
    """Send without end; return when the server does not want more."""
    for _ in range(1000):
        try:
            await stream.send(piece)
        except anyio.BrokenResourceError:
            return
    pytest.fail("the server took 64 MB")


START = b"POST / HTTP/1.1\r\nHost: x\r\n"
ENDLESS = {
    "a URL": (b"GET /", b"x" * 2**16),
    "one header": (START + b"X: ", b"x" * 2**16),
    "many headers": (START, b"X: y\r\n" * 10_000),
    "trailers": (
        START + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
        b"X: y\r\n" * 10_000,
    ),
    "one trailer": (
        START + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: ",
        b"x" * 2**16,
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_a_head_without_end_closes_the_connection(what: str) -> None:
    start, more = ENDLESS[what]
    async with connected() as stream:
        await stream.send(start)
        await pour(stream, more)


async def test_a_head_that_is_too_long_is_refused() -> None:
    async with connected() as stream:
        await stream.send(START + b"X: " + b"x" * 70_000)
        assert (await rest(stream)).startswith(b"HTTP/1.1 431 ")


async def test_a_head_of_many_short_headers_is_refused() -> None:
    async with connected() as stream:
        await stream.send(
            b"POST / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"a%d:\r\n" % n for n in range(300))
        )
        assert (await rest(stream)).startswith(b"HTTP/1.1 400 ")


async def test_a_body_of_many_tiny_chunks_is_refused() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with connected() as stream:
        await stream.send(head + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n")
        assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
        await stream.send(head + b"1\r\nx\r\n" * 2000)
        assert (await rest(stream)).startswith(b"HTTP/1.1 400 ")


async def test_bodies_of_any_size_and_many_requests_pass() -> None:
    async with connected() as stream:
        for size in (0, 3, 2**20):
            request = START + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
            for piece in (request[:10], request[10:50], request[50:]):
                if piece:
                    await stream.send(piece)
            answer = await stream.receive()
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"%d host,content-length" % size in answer


async def test_trailers_are_no_headers() -> None:
    async with connected() as stream:
        chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nAuthorization: no\r\n\r\n"
        await stream.send(START + chunked)
        assert b"1 host,transfer-encoding" in await stream.receive()


@pytest.mark.parametrize("said", [b"", b"GET /", START])
async def test_a_head_that_does_not_come_closes_the_connection(said: bytes) -> None:
    async with connected(Hasty) as stream:
        if said:
            await stream.send(said)
        assert await rest(stream) == b""


def test_an_answer_to_a_connection_that_was_aborted_is_no_error() -> None:
    """Seen without: a traceback in the log for each client with pipelined requests that was closed."""
    ends: list[BaseException | None] = []

    async def abort_first(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        connection: BoundedHttp = scope[HOLD_UNSENT].__self__
        connection.abort()
        await until(lambda: connection not in connection.connections)
        try:
            await send({"type": "http.response.body", "body": b"x"})
            ends.append(None)
        except RuntimeError as error:
            ends.append(error)

    async def use() -> None:
        async with connected(app=abort_first) as stream:
            await stream.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
            await rest(stream)
            await until(lambda: ends)

    uvloop.run(use())
    assert ends[0] is None
