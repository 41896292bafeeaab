"""Tunnels between a browser and a site."""

from __future__ import annotations

import socket
import struct
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream
from support.proxy_ends import LOCAL, OVER, Refusals, browser, echo, read_head, read_rest, site

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.network_policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.egress.socks import SocksReply


async def test_bytes_sent_before_the_tunnel_stands_are_not_lost(proxy: FilteringProxy) -> None:
    async with site(echo) as port, browser(await proxy.admit(LOCAL)) as one:
        assert await one.connect(f"127.0.0.1:{port}", b"early") is SocksReply.SUCCEEDED
        assert await one.receive_exactly(5) == b"early"


async def test_each_half_of_a_tunnel_ends_for_itself(proxy: FilteringProxy) -> None:
    async def handler(stream: SocketStream) -> None:
        request = await read_rest(stream)
        await stream.send(b"you said " + request)

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        await one.connect(f"127.0.0.1:{port}")
        await one.stream.send(b"this")
        await one.stream.send_eof()
        assert await read_rest(one.stream) == b"you said this"


async def test_revoking_an_access_ends_its_tunnels_at_once(
    proxy: FilteringProxy, leaks: Any
) -> None:
    access, other = await proxy.admit(LOCAL), await proxy.admit(LOCAL)
    async with site(echo) as port, browser(access) as one, browser(other) as two:
        await one.connect(f"127.0.0.1:{port}")
        await two.connect(f"127.0.0.1:{port}")
        access.revoke()
        access.revoke()
        with pytest.raises(OVER):
            await one.stream.receive()
        await two.stream.send(b"still")
        assert await two.stream.receive() == b"still"
    access.free()
    other.free()
    await leaks.check()


async def test_a_tunnel_is_broken_off_when_too_much_comes_without_a_pause() -> None:
    clock = ManualClock()
    refusals = Refusals()
    policy = NetworkPolicy(private=True, response_bytes=1000)
    async with (
        FilteringProxy(clock=clock) as proxy,
        site(echo) as port,
        browser(await proxy.admit(policy, on_refused=refusals)) as one,
    ):
        await one.connect(f"127.0.0.1:{port}")
        for _ in range(3):  # these look like three responses
            await one.stream.send(b"x" * 1000)
            got = 0
            while got < 1000:
                got += len(await one.stream.receive())
            clock.advance(6.0)
        await one.stream.send(b"x" * 1001)
        with pytest.raises(anyio.BrokenResourceError):
            await read_rest(one.stream)
    assert len(refusals) == 1


async def test_half_an_answer_does_not_look_like_a_whole_one(proxy: FilteringProxy) -> None:
    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"half")
        reset(stream)

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        await one.connect(f"127.0.0.1:{port}")
        await one.stream.send(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(anyio.BrokenResourceError):
            await read_rest(one.stream)


def reset(stream: SocketStream) -> None:
    """Make the close of a stream a reset."""
    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_a_browser_that_hangs_up_ends_the_connection_to_the_site(
    proxy: FilteringProxy,
) -> None:
    connected, ended = anyio.Event(), anyio.Event()

    async def handler(stream: SocketStream) -> None:
        connected.set()
        try:
            await read_rest(stream)
        finally:
            ended.set()

    async with site(handler) as port:
        async with browser(await proxy.admit(LOCAL)) as one:
            await one.connect(f"127.0.0.1:{port}")
            await connected.wait()
        await ended.wait()


async def test_a_reader_that_does_not_read_stops_the_site(proxy: FilteringProxy) -> None:
    access = await proxy.admit(LOCAL)
    sent = 0

    async def handler(stream: SocketStream) -> None:
        nonlocal sent
        while True:
            await stream.send(b"x" * 65536)
            sent += 65536

    async with site(handler) as port, browser(access) as one:
        await one.connect(f"127.0.0.1:{port}")
        before = -1
        while sent != before or sent == 0:  # until nothing moves any more
            before = sent
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
        assert sent < 64 * 2**20
        assert access.statistics().bytes_received < 64 * 2**20
