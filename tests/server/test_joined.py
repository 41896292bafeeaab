"""A response reaches its client in no more pieces than intended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from statehold.server.http.bounded_protocol import BoundedHttp
from statehold.server.http.joined import JoinedTransport

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Pieces(asyncio.Protocol):
    """A client that collects the pieces of a response as they arrive."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.some = asyncio.Event()
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.found.append(data)
        self.some.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    async def ending(self, text: bytes) -> list[bytes]:
        """Wait for data that ends with this text."""
        with anyio.fail_after(10):
            while not b"".join(self.found).endswith(text):
                self.some.clear()
                await self.some.wait()
        found, self.found = self.found, []
        return found


@asynccontextmanager
async def asked(app: ASGIApp) -> AsyncGenerator[tuple[asyncio.Transport, Pieces]]:
    """Serve an application, and ask it once."""
    settings, state = uvicorn.Config(app, log_config=None, ws="none"), ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHttp(settings, state, {}), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        transport, pieces = await loop.create_connection(Pieces, host, port)
        transport.write(ASK)
        yield transport, pieces
        transport.close()
        with anyio.fail_after(10):
            await pieces.closed.wait()


def start(*headers: tuple[bytes, bytes]) -> dict[str, object]:
    return {"type": "http.response.start", "status": 200, "headers": list(headers)}


def part(body: bytes, *, more: bool = False) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def test_a_head_comes_with_its_body() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start((b"content-length", b"5")))
        await send(part(b"hello"))

    async with asked(app) as (transport, pieces):
        for _ in range(20):
            found = await pieces.ending(b"hello")
            assert len(found) == 1
            assert found[0].startswith(b"HTTP/1.1 200 OK\r\n")
            assert found[0].count(b"\r\n\r\n") == 1
            transport.write(ASK)
        await pieces.ending(b"hello")


async def test_a_head_does_not_wait_for_a_body_that_comes_later() -> None:
    going_on = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await going_on.wait()
        await send(part(b"later"))

    async with asked(app) as (_, pieces):
        assert (await pieces.ending(b"\r\n\r\n"))[0].startswith(b"HTTP/1.1 200 OK\r\n")
        going_on.set()
        assert b"".join(await pieces.ending(b"0\r\n\r\n")) == b"5\r\nlater\r\n0\r\n\r\n"


@pytest.mark.parametrize("size", [0, 2**20])
async def test_a_connection_that_is_closed_after_its_response_ends_with_all_of_it(
    size: int,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start((b"content-length", b"%d" % size), (b"connection", b"close")))
        await send(part(b"x" * size))

    async with asked(app) as (_, pieces):
        with anyio.fail_after(10):
            await pieces.closed.wait()
        assert b"".join(pieces.found).partition(b"\r\n\r\n")[2] == b"x" * size


def test_what_is_written_after_the_client_has_gone_is_dropped() -> None:
    """asyncio does the same by itself."""
    pytest.importorskip("uvloop")

    async def write() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            pieces = Pieces()
            transport, _ = await loop.create_connection(lambda: pieces, host, port)
            joined = JoinedTransport(transport)
            joined.abort()
            with anyio.fail_after(10):
                await pieces.closed.wait()
            for text in (b"HTTP/1.1 200 OK\r\n\r\n", b"data: x", b"data: y"):
                joined.write(text)

    anyio.run(write, backend_options={"use_uvloop": True})


async def test_what_fails_without_a_word_is_answered() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        return

    async with asked(app) as (_, pieces):
        with anyio.fail_after(10):
            await pieces.closed.wait()
        assert b"".join(pieces.found).startswith(b"HTTP/1.1 500 ")
