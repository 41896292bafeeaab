"""Tunnels through the proxy."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from rawhttp import (
    LOCAL,
    OVER,
    browser,
    echo,
    read_rest,
    site,
)

from statehold.tools.browser.egress.proxy import FilteringProxy


async def test_a_tunnel_carries_bytes_both_ways(proxy: FilteringProxy) -> None:
    grant = await proxy.admit(LOCAL)
    async with site(echo) as port, browser(grant) as one:
        assert (await one.tunnel(f"127.0.0.1:{port}")).status == 200
        for size in (1, 70_000):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.stream.send, b"x" * size)
                got = 0
                while got < size:
                    got += len(await one.stream.receive())
        assert grant.statistics().received == 70_001
        assert grant.statistics().connections == 1


async def test_bytes_sent_before_the_tunnel_stands_are_not_lost(proxy: FilteringProxy) -> None:
    async with site(echo) as port, browser(await proxy.admit(LOCAL)) as one:
        await one.say(
            f"CONNECT 127.0.0.1:{port} HTTP/1.1", f"Host: 127.0.0.1:{port}", body=b"early"
        )
        data = b""
        while not data.endswith(b"early"):
            data += await one.stream.receive()


async def test_each_half_of_a_tunnel_ends_for_itself(proxy: FilteringProxy) -> None:
    async def handler(stream: SocketStream) -> None:
        asked = await read_rest(stream)
        await stream.send(b"you said " + asked)

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        await one.tunnel(f"127.0.0.1:{port}")
        await one.stream.send(b"this")
        await one.stream.send_eof()
        assert await read_rest(one.stream) == b"you said this"


async def test_revoking_ends_tunnels_and_requests_at_once(
    proxy: FilteringProxy, leaks: Any
) -> None:
    grant, other = await proxy.admit(LOCAL), await proxy.admit(LOCAL)
    async with site(echo) as port, browser(grant) as one, browser(other) as two:
        await one.tunnel(f"127.0.0.1:{port}")
        await two.tunnel(f"127.0.0.1:{port}")
        grant.revoke()
        grant.revoke()
        with pytest.raises(OVER):
            await one.stream.receive()
        await two.stream.send(b"still")
        assert await two.stream.receive() == b"still"
    grant.free()
    other.free()
    await leaks.check()
