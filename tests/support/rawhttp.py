"""Both ends of a proxy, byte by byte: scripted sites on loopback, and a client that sends scripted bytes."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import EgressAccess, FilteringProxy
from statehold.tools.browser.egress.resolver import Resolver

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


def hello(*bodies: bytes) -> tuple[Handler, list[bytes]]:
    """Return a site that answers each request with the next body, and the heads it saw."""
    seen: list[bytes] = []

    async def handler(stream: SocketStream) -> None:
        for number in range(1000):
            seen.append(await read_head(stream))
            body = bodies[min(number, len(bodies) - 1)]
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    return handler, seen


async def echo(stream: SocketStream) -> None:
    while True:
        await stream.send(await stream.receive())


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Browser:
    """One connection to the proxy."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream

    async def say(self, *lines: str, body: bytes = b"") -> None:
        """Send a head and a body."""
        head = "".join(f"{line}\r\n" for line in lines).encode()
        await self.stream.send(head + b"\r\n" + body)

    async def hear(self, method: str = "GET") -> Answer:
        """Read one answer."""
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        http.send(h11.EndOfMessage())
        answer = Answer(0, {}, b"")
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                try:
                    http.receive_data(await self.stream.receive())
                except anyio.EndOfStream:
                    http.receive_data(b"")
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = {n.decode(): v.decode() for n, v in event.headers}
                if method == "CONNECT" and answer.status == 200:
                    return answer
            elif isinstance(event, h11.Data):
                answer.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return answer

    async def get(self, url: str, *lines: str, method: str = "GET") -> Answer:
        host = url.removeprefix("http://").partition("/")[0]
        await self.say(f"{method} {url} HTTP/1.1", f"Host: {host}", *lines)
        return await self.hear(method)

    async def tunnel(self, authority: str) -> Answer:
        await self.say(f"CONNECT {authority} HTTP/1.1", f"Host: {authority}")
        return await self.hear("CONNECT")


@asynccontextmanager
async def browser(grant: EgressAccess) -> AsyncGenerator[Browser]:
    async with await anyio.connect_tcp("127.0.0.1", port_of(grant)) as stream:
        yield Browser(stream)


def port_of(grant: EgressAccess) -> int:
    return int(grant.server.rpartition(":")[2])


class Told(list[tuple[str, str]]):
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
    names: Names, *, connections: int = 9, connections_per_grant: int = 9
) -> FilteringProxy:
    return FilteringProxy(
        resolver=Resolver(ManualClock(), lookup=names, keep_seconds=0),
        connections=connections,
        connections_per_grant=connections_per_grant,
    )
