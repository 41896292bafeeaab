"""The limit on the speed of all connections of a session."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from support.proxy_ends import LOCAL, browser, echo, get, hello, site

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.network_policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy


async def test_nothing_passes_while_an_access_is_held(proxy: FilteringProxy) -> None:
    access = await proxy.admit(LOCAL)
    async with site(echo) as port, browser(access) as one:
        await one.connect(f"127.0.0.1:{port}")
        await one.stream.send(b"before")
        assert await one.stream.receive() == b"before"
        with access.bandwidth.pause():
            with access.bandwidth.pause():
                await one.stream.send(b"meanwhile")
            carried = access.statistics()
            await anyio.wait_all_tasks_blocked()
            assert access.statistics() == carried
        assert await one.stream.receive() == b"meanwhile"


async def test_all_connections_of_an_access_share_its_bandwidth() -> None:
    clock = ManualClock()
    policy = NetworkPolicy(private=True, bytes_per_second=4000)
    handler, _ = hello(b"x" * 2000)
    async with FilteringProxy(clock=clock) as proxy, site(handler) as port:
        access = await proxy.admit(policy)
        started = clock.now()

        async def fetch() -> None:
            assert len(await get(access, f"127.0.0.1:{port}")) == 2000

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(fetch)
            while access.bytes_received < 4000 or clock.waiting:
                if clock.waiting:
                    clock.advance(0.05)
                await anyio.lowlevel.checkpoint()
        carried = access.statistics().bytes_sent + access.statistics().bytes_received
        assert clock.now() - started >= carried / 4000 - 0.3
