"""Limits on the number of connections, on bytes and on speed."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream
from rawhttp import (
    LOCAL,
    OVER,
    Names,
    Told,
    browser,
    echo,
    hello,
    proxy_with,
    read_head,
    read_rest,
    site,
)

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.bandwidth import Bandwidth
from statehold.tools.browser.egress.policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.egress.quota import affordable


async def test_connections_are_bounded_per_grant_and_in_all() -> None:
    async with site(echo) as port, proxy_with(Names(), connections_per_grant=1) as proxy:
        grant = await proxy.admit(LOCAL)
        async with browser(grant) as one, browser(grant) as two:
            assert (await one.tunnel(f"127.0.0.1:{port}")).status == 200
            assert (await two.tunnel(f"127.0.0.1:{port}")).status == 503
            assert grant.statistics().connections == 1
            async with browser(await proxy.admit(LOCAL)) as three:
                assert (await three.tunnel(f"127.0.0.1:{port}")).status == 200
        # There is room for the second as soon as the first is gone.
        async with browser(grant) as one, browser(grant) as two:
            await one.tunnel(f"127.0.0.1:{port}")
            assert (await two.get("http://nowhere.example/")).status == 503
            await one.stream.aclose()
            while grant.statistics().connections:
                await anyio.lowlevel.checkpoint()
            assert (await two.get("http://nowhere.example/")).status == 502
    async with site(echo) as port, proxy_with(Names(), connections=1) as proxy:
        first, second = await proxy.admit(LOCAL), await proxy.admit(LOCAL)
        async with browser(first) as one:
            assert (await one.tunnel(f"127.0.0.1:{port}")).status == 200
            async with browser(second) as two:
                with pytest.raises(OVER):
                    await two.stream.receive()


async def test_nobody_gets_so_many_connections_that_none_is_left_for_others() -> None:
    told = Told()
    async with site(echo) as port, proxy_with(Names(), connections=6) as proxy:
        there = f"127.0.0.1:{port}"
        many = [await proxy.admit(LOCAL, owner="alice", on_failed=told) for _ in range(2)]
        late = await proxy.admit(LOCAL, owner="ben")
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(browser(many[n % 2])) for n in range(3)]
            for one in opened:
                assert (await one.tunnel(there)).status == 200
            async with browser(many[0]) as one:
                with pytest.raises(OVER):
                    await one.stream.receive()
            assert told == [("a site", "too many connections are open")]
            async with browser(late) as one:
                assert (await one.tunnel(there)).status == 200
            await opened[0].stream.aclose()
            while proxy.connections > 2:
                await anyio.lowlevel.checkpoint()
            async with browser(many[0]) as one:
                assert (await one.tunnel(there)).status == 200


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
async def test_connections_leave_half_of_all_files_to_the_rest_of_the_process() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        assert affordable() == 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_response_that_announces_too_much_is_refused(proxy: FilteringProxy) -> None:
    told = Told()
    policy = NetworkPolicy(private=True, response_bytes=1000)
    handler, _ = hello(b"x" * 1001, b"x" * 1000)
    async with site(handler) as port, browser(await proxy.admit(policy, on_refused=told)) as one:
        assert (await one.get(f"http://127.0.0.1:{port}/", method="HEAD")).status == 200
    async with site(handler) as port, browser(await proxy.admit(policy, on_refused=told)) as one:
        assert (await one.get(f"http://127.0.0.1:{port}/")).status == 403
    assert [reason for _, reason in told] == ["the response is larger than the 1000 bytes allowed"]


async def test_a_response_that_grows_too_large_is_broken_off(proxy: FilteringProxy) -> None:
    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send(b"x" * 500)

    told = Told()
    policy = NetworkPolicy(private=True, response_bytes=1000)
    async with site(handler) as port, browser(await proxy.admit(policy, on_refused=told)) as one:
        await one.say(f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        with pytest.raises(anyio.BrokenResourceError):
            await read_rest(one.stream)
    assert len(told) == 1


async def test_a_tunnel_is_broken_off_when_too_much_comes_without_a_pause() -> None:
    clock = ManualClock()
    told = Told()
    policy = NetworkPolicy(private=True, response_bytes=1000)
    async with (
        FilteringProxy(clock=clock) as proxy,
        site(echo) as port,
        browser(await proxy.admit(policy, on_refused=told)) as one,
    ):
        await one.tunnel(f"127.0.0.1:{port}")
        for _ in range(3):  # these look like three responses
            await one.stream.send(b"x" * 1000)
            got = 0
            while got < 1000:
                got += len(await one.stream.receive())
            clock.advance(6.0)
        await one.stream.send(b"x" * 1001)
        with pytest.raises(anyio.BrokenResourceError):
            await read_rest(one.stream)
    assert len(told) == 1


async def test_bytes_take_their_time() -> None:
    clock = ManualClock()
    bandwidth = Bandwidth(1000, clock)
    assert bandwidth.piece == 250
    await bandwidth.take(250)  # the saved allowance
    done: list[int] = []

    async def take(count: int) -> None:
        await bandwidth.take(count)
        done.append(count)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take, 500)
        tasks.start_soon(take, 1000)
        await anyio.wait_all_tasks_blocked()
        clock.advance(0.5)
        await anyio.wait_all_tasks_blocked()
        assert done == [500]
        clock.advance(1.0)
    assert done == [500, 1000]
    assert Bandwidth(None, clock).piece == 65536


async def test_nothing_passes_while_a_grant_is_held(proxy: FilteringProxy) -> None:
    grant = await proxy.admit(LOCAL)
    async with site(echo) as port, browser(grant) as one:
        await one.tunnel(f"127.0.0.1:{port}")
        await one.stream.send(b"before")
        assert await one.stream.receive() == b"before"
        with grant.bandwidth.hold():
            with grant.bandwidth.hold():
                await one.stream.send(b"meanwhile")
            carried = grant.statistics()
            await anyio.wait_all_tasks_blocked()
            assert grant.statistics() == carried
        assert await one.stream.receive() == b"meanwhile"


async def test_all_connections_of_a_grant_share_its_bandwidth() -> None:
    clock = ManualClock()
    policy = NetworkPolicy(private=True, bytes_per_second=4000)
    handler, _ = hello(b"x" * 2000)
    async with FilteringProxy(clock=clock) as proxy, site(handler) as port:
        grant = await proxy.admit(policy)
        started = clock.now()

        async def fetch() -> None:
            async with browser(grant) as one:
                assert len((await one.get(f"http://127.0.0.1:{port}/")).body) == 2000

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(fetch)
            while grant.received < 4000 or clock.waiting:
                if clock.waiting:
                    clock.advance(0.05)
                await anyio.lowlevel.checkpoint()
        carried = grant.statistics().sent + grant.statistics().received
        assert clock.now() - started >= carried / 4000 - 0.3
