"""The sites that the proxy connects to, and its refusals by name, by address and after a lookup."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import anyio
import pytest
from support.proxy_ends import (
    LOCAL,
    OVER,
    Names,
    Refusals,
    connect,
    get,
    hello,
    port_of,
    proxy_with,
    site,
)

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.network_policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.egress.resolver import Resolver
from statehold.tools.browser.egress.socks import SocksReply

REFUSED, UNREACHABLE = SocksReply.NOT_ALLOWED, SocksReply.HOST_UNREACHABLE


async def test_a_refused_connection_is_reported(proxy: FilteringProxy) -> None:
    refusals = Refusals()
    policy = NetworkPolicy(allow=["127.0.0.1", "here.example"], block=["*.evil.example"])
    access = await proxy.admit(policy, on_refused=refusals)
    assert await connect(access, "ads.evil.example:80") is REFUSED
    assert await connect(access, "127.0.0.2:443") is REFUSED
    assert await connect(access, "127.0.0.2:8080") is REFUSED
    assert refusals == [
        ("ads.evil.example", "ads.evil.example is blocked"),
        ("127.0.0.2", "127.0.0.2 is not among the allowed hosts"),
        ("127.0.0.2:8080", "127.0.0.2:8080 is not among the allowed hosts"),
    ]
    assert access.statistics().refusals == 3


async def test_a_callback_that_fails_harms_no_connection(
    proxy: FilteringProxy, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(host: str, reason: str) -> None:
        raise RuntimeError(host)

    access = await proxy.admit(NetworkPolicy(), on_refused=failing)
    for _ in range(2):
        assert await connect(access, "127.0.0.1:80") is REFUSED
    assert "the callback for a refused connection failed" in caplog.text


async def test_a_name_that_leads_to_a_private_address_is_refused() -> None:
    handler, connected = hello(b"secret")
    refusals = Refusals()
    names = Names(inside=[["127.0.0.1"]], mapped=[["::ffff:127.0.0.1"]], meta=[["169.254.169.254"]])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
    ):
        access = await proxy.admit(NetworkPolicy(), on_refused=refusals)
        for name in ("inside", "mapped", "meta"):
            assert await connect(access, f"{name}.example:{port}") is REFUSED
        for spelled in ("2130706433", "127.1", "0x7f000001", "[::ffff:7f00:1]", "0"):
            assert await connect(access, f"{spelled}:{port}") is REFUSED
    assert connected == []
    assert refusals[0] == (
        f"inside.example:{port}",
        "inside.example leads to 127.0.0.1 is a loopback address, which `allow` does not list",
    )


async def test_an_allowed_name_reaches_a_private_address_only_where_that_is_allowed_too() -> None:
    handler, connected = hello(b"inside")
    names = Names(inside=[["127.0.0.1"]])
    async with site(handler) as port, proxy_with(names) as proxy:
        by_name = ["inside.example:*", "localhost:*"]
        for extra, reply in (([], REFUSED), ([f"127.0.0.1:{port}"], SocksReply.SUCCEEDED)):
            policy = NetworkPolicy(allow=[*by_name, *extra])
            access = await proxy.admit(policy)
            for name in ("inside.example", "localhost"):
                assert await connect(access, f"{name}:{port}") is reply
    assert len(connected) == 2


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
async def test_no_policy_opens_this_process(bound: str) -> None:
    handler, connected = hello(b"secret")
    other, _ = hello(b"other")
    refusals = Refusals()
    policy = NetworkPolicy(private=True, allow=["*", "127.0.0.1"])
    names = Resolver(ManualClock(), lookup=Names(inside=[["127.0.0.1"]], out=[["192.0.2.1"]]))
    async with (
        site(handler, bound) as port,
        site(other) as free,
        FilteringProxy(own_ports={port}, resolver=names, connect_seconds=0.1) as proxy,
    ):
        access = await proxy.admit(policy, on_refused=refusals)
        way_out = port_of(await proxy.admit(policy))
        spellings = ["127.0.0.1", "127.0.0.2", "0", "2130706433", "localhost", "inside.example"]
        for host in (*spellings, "[::1]", "[::]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"):
            assert await connect(access, f"{host}:{port}") is REFUSED
        assert await connect(access, f"127.0.0.1:{way_out}") is REFUSED
        assert len(refusals) == 11
        assert await get(access, f"127.0.0.1:{free}") == b"other"
        # The port is refused only on this machine.
        assert await connect(access, f"out.example:{port}") is UNREACHABLE
        assert await connect(access, f"localhost:{port}") is REFUSED
    assert connected == []
    assert refusals[0][1] == f"127.0.0.1 at port {port} is Statehold itself"


async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    """The first answer is judged and used; the second, private one, is judged as well."""
    handler, connected = hello(b"secret")
    names = Names(rebound=[["127.0.0.9"], ["127.0.0.1"]])
    policy = NetworkPolicy(allow=["*", "127.0.0.9"])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
    ):
        access = await proxy.admit(policy)
        assert await connect(access, f"rebound.example:{port}") is UNREACHABLE
        assert await connect(access, f"rebound.example:{port}") is REFUSED
    assert connected == []
    assert len(names.asked) == 2


async def test_only_the_allowed_of_several_addresses_are_tried() -> None:
    here, seen_here = hello(b"here")
    there, seen_there = hello(b"there")
    names = Names(both=[["127.0.0.1", "127.0.0.2"]])
    policy = NetworkPolicy(allow=["*", "127.0.0.2"])
    async with (
        site(here, "127.0.0.1") as port,
        proxy_with(names) as proxy,
    ):
        access = await proxy.admit(policy)
        assert await connect(access, f"both.example:{port}") is UNREACHABLE
        async with site(there, "127.0.0.2") as other:
            assert await get(access, f"both.example:{other}") == b"there"
    assert seen_here == []
    assert len(seen_there) == 1


async def test_a_refused_name_is_not_even_looked_up() -> None:
    names = Names(good=[["127.0.0.1"]])
    policy = NetworkPolicy(allow=["good.example"], block=["bad.good.example"])
    async with proxy_with(names) as proxy:
        access = await proxy.admit(policy)
        assert await connect(access, "secret-in-a-name.evil.example:443") is REFUSED
        assert await connect(access, "bad.good.example:443") is REFUSED
    assert names.asked == []


async def test_the_second_address_is_tried_when_the_first_does_not_answer() -> None:
    handler, _ = hello(b"hi")
    names = Names(two=[["127.0.0.3", "127.0.0.1"]], v6=[["::1", "127.0.0.1"]])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
    ):
        access = await proxy.admit(LOCAL)
        assert await get(access, f"two.example:{port}") == b"hi"
        assert await get(access, f"v6.example:{port}") == b"hi"
        assert await get(access, f"localhost:{port}") == b"hi"


async def test_ipv6_sites_are_reached(proxy: FilteringProxy) -> None:
    handler, _ = hello(b"six")
    try:
        access = await proxy.admit(LOCAL)
        async with site(handler, "::1") as port:
            assert await get(access, f"[::1]:{port}") == b"six"
    except OSError:
        pytest.skip("there is no IPv6 here")


async def test_a_site_that_cannot_be_reached_is_no_refusal() -> None:
    failed, refused = Refusals(), Refusals()
    async with proxy_with(Names()) as proxy:
        access = await proxy.admit(LOCAL, on_failed=failed, on_refused=refused)
        assert await connect(access, "nowhere.example:80") is UNREACHABLE
        assert await connect(access, "127.0.0.1:1") is UNREACHABLE
    assert refused == []
    assert failed == [
        ("nowhere.example", "the name nowhere.example has no address"),
        ("127.0.0.1:1", "127.0.0.1:1 refuses connections"),
    ]
    assert (access.statistics().refusals, access.statistics().failures) == (0, 2)


async def test_a_site_that_resets_each_connection_is_reported_as_one_that_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # In a thread: the reset has to arrive while the connection is set up here.
    def reset_next() -> None:
        connection, _ = listener.accept()
        linger = struct.pack("ii", True, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        site_address = f"127.0.0.1:{listener.getsockname()[1]}"
        async with proxy_with(Names()) as proxy:
            access = await proxy.admit(LOCAL)
            for _ in range(50):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(anyio.to_thread.run_sync, reset_next)
                    with suppress(*OVER):
                        await connect(access, site_address)
            assert access.statistics().failures > 0
    assert not caplog.records
