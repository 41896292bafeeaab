"""Both ends of a proxy, byte by byte: scripted sites on loopback, and a client that sends scripted bytes."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.network_policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import EgressAccess, FilteringProxy
from statehold.tools.browser.egress.resolver import Resolver
from statehold.tools.browser.egress.socks import SocksReply

Handler = Callable[[SocketStream], Awaitable[None]]

LOCAL = NetworkPolicy(allow=["*", "127.0.0.0/8", "::1"])
"""Allows the sites that the tests serve."""

OVER = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


@asynccontextmanager
async def site(handler: Handler, host: str = "127.0.0.1") -> AsyncGenerator[int]:
    """Serve each connection with `handler`; yields the port."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            with suppress(*OVER):
                await handler(stream)

    listener = await anyio.create_tcp_listener(local_host=host)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def read_head(stream: SocketStream) -> bytes:
    """Return the head of a request, and whatever came with it."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive()
    return head


async def read_rest(stream: SocketStream) -> bytes:
    """Return all that comes until the other side ends. A reset raises BrokenResourceError."""
    data = b""
    try:
        while True:
            data += await stream.receive()
    except anyio.EndOfStream:
        return data


def hello(body: bytes) -> tuple[Handler, list[SocketStream]]:
    """Return a site that answers each request with this body, and the connections that it got."""
    connected: list[SocketStream] = []

    async def handler(stream: SocketStream) -> None:
        connected.append(stream)
        while True:
            await read_head(stream)
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    return handler, connected


async def echo(stream: SocketStream) -> None:
    while True:
        await stream.send(await stream.receive())


class Browser:
    """One connection to the proxy."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream

    async def connect(self, authority: str, early: bytes = b"") -> SocksReply:
        """Ask for a site, as `host:port`, and send `early` without waiting for the reply."""
        host, _, port = authority.rpartition(":")
        name = host.removeprefix("[").removesuffix("]").encode()
        request = b"\5\1\0\3" + bytes((len(name),)) + name + int(port).to_bytes(2)
        await self.stream.send(b"\5\1\0" + request + early)
        assert await self.receive_exactly(2) == b"\5\0"
        reply = await self.receive_exactly(10)
        return SocksReply(reply[1])

    async def receive_exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += await self.stream.receive(count - len(data))
        return data

    async def get(self) -> bytes:
        """Send a request to the site, and return the body of its answer."""
        await self.stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await self.stream.receive(1)
        return await self.receive_exactly(int(head.rpartition(b"Content-Length: ")[2]))


@asynccontextmanager
async def browser(access: EgressAccess) -> AsyncGenerator[Browser]:
    async with await anyio.connect_tcp("127.0.0.1", port_of(access)) as stream:
        yield Browser(stream)


async def connect(access: EgressAccess, authority: str) -> SocksReply:
    """Ask for a site on a connection of its own."""
    async with browser(access) as one:
        return await one.connect(authority)


async def get(access: EgressAccess, authority: str) -> bytes:
    """Return the body of a site's answer, on a connection of its own."""
    async with browser(access) as one:
        assert await one.connect(authority) is SocksReply.SUCCEEDED
        return await one.get()


def port_of(access: EgressAccess) -> int:
    return int(access.server.rpartition(":")[2])


class Refusals(list[tuple[str, str]]):
    """Records the hosts and reasons of refusals."""

    def __call__(self, host: str, reason: str) -> None:
        self.append((host, reason))


class Names:
    """A resolver's source, whose answers may change from one question to the next."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        answers = self.answers.get(name.removesuffix(".example"), [])
        if not answers:
            raise socket.gaierror("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


def proxy_with(
    names: Names, *, connections: int = 9, connections_per_access: int = 9
) -> FilteringProxy:
    return FilteringProxy(
        resolver=Resolver(ManualClock(), lookup=names, keep_seconds=0),
        connections=connections,
        connections_per_access=connections_per_access,
    )
