"""Limits on the number of connections."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack

import pytest
from support.proxy_ends import (
    LOCAL,
    OVER,
    Names,
    Refusals,
    browser,
    connect,
    echo,
    proxy_with,
    site,
)
from support.waiting import until

from statehold.tools.browser.egress.bandwidth import affordable
from statehold.tools.browser.egress.socks import SocksReply


async def test_connections_are_bounded_per_access_and_in_all() -> None:
    async with site(echo) as port, proxy_with(Names(), connections_per_access=1) as proxy:
        there = f"127.0.0.1:{port}"
        access = await proxy.admit(LOCAL)
        async with browser(access) as one:
            assert await one.connect(there) is SocksReply.SUCCEEDED
            assert await connect(access, there) is SocksReply.FAILED
            assert access.statistics().connections == 1
            assert await connect(await proxy.admit(LOCAL), there) is SocksReply.SUCCEEDED
        # There is room for the second as soon as the first is gone.
        await until(lambda: not access.statistics().connections)
        assert await connect(access, there) is SocksReply.SUCCEEDED
    async with site(echo) as port, proxy_with(Names(), connections=1) as proxy:
        first, second = await proxy.admit(LOCAL), await proxy.admit(LOCAL)
        async with browser(first) as one:
            assert await one.connect(f"127.0.0.1:{port}") is SocksReply.SUCCEEDED
            async with browser(second) as two:
                with pytest.raises(OVER):
                    await two.stream.receive()


async def test_an_owner_leaves_connections_for_other_owners() -> None:
    failures = Refusals()
    async with site(echo) as port, proxy_with(Names(), connections=6) as proxy:
        there = f"127.0.0.1:{port}"
        many = [await proxy.admit(LOCAL, owner="alice", on_failed=failures) for _ in range(2)]
        late = await proxy.admit(LOCAL, owner="ben")
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(browser(many[n % 2])) for n in range(3)]
            for one in opened:
                assert await one.connect(there) is SocksReply.SUCCEEDED
            async with browser(many[0]) as one:
                with pytest.raises(OVER):
                    await one.stream.receive()
            assert failures == [("a site", "too many connections are open")]
            async with browser(late) as one:
                assert await one.connect(there) is SocksReply.SUCCEEDED
            await opened[0].stream.aclose()
            await until(lambda: proxy.connections <= 2)
            async with browser(many[0]) as one:
                assert await one.connect(there) is SocksReply.SUCCEEDED


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
async def test_connections_leave_half_of_all_files_to_the_rest_of_the_process() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        assert affordable() == 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
