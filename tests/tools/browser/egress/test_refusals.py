"""Requests that the proxy refuses by name, by address or after a lookup, and the text of each refusal."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import SocketStream
from rawhttp import (
    LOCAL,
    Names,
    Told,
    browser,
    hello,
    port_of,
    proxy_with,
    read_head,
    read_rest,
    site,
)

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.egress.resolver import Resolver


async def test_a_refused_request_says_so_in_a_page_and_is_reported(proxy: FilteringProxy) -> None:
    told = Told()
    policy = NetworkPolicy(allow=["127.0.0.1", "here.example"], block=["*.evil.example"])
    grant = await proxy.admit(policy, on_refused=told)
    async with browser(grant) as one:
        answer = await one.get("http://ads.evil.example/x?token=secret")
        assert answer.status == 403
        assert answer.headers["content-type"].startswith("text/html")
        assert b"ads.evil.example is blocked" in answer.body
        assert b"secret" not in answer.body
        assert (await one.tunnel("127.0.0.2:443")).status == 403
        assert (await one.get("http://127.0.0.2/", method="HEAD")).status == 403
        await one.say("POST http://127.0.0.2/ HTTP/1.1", "Host: 127.0.0.2", "Content-Length: 9")
        assert (await one.hear()).status == 403
    assert told == [
        ("ads.evil.example", "ads.evil.example is blocked"),
        ("127.0.0.2", "127.0.0.2 is not among the allowed hosts"),
        ("127.0.0.2", "127.0.0.2 is not among the allowed hosts"),
        ("127.0.0.2", "127.0.0.2 is not among the allowed hosts"),
    ]
    assert grant.statistics().refused == 4


async def test_a_callback_that_fails_harms_nobody(
    proxy: FilteringProxy, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(host: str, reason: str) -> None:
        raise RuntimeError(host)

    async with browser(await proxy.admit(NetworkPolicy(), on_refused=failing)) as one:
        assert (await one.get("http://127.0.0.1/")).status == 403
        assert (await one.get("http://127.0.0.1/")).status == 403
    assert "telling of a refused request failed" in caplog.text


async def test_a_name_that_leads_to_a_private_address_is_refused() -> None:
    handler, seen = hello(b"secret")
    told = Told()
    names = Names(inside=[["127.0.0.1"]], mapped=[["::ffff:127.0.0.1"]], meta=[["169.254.169.254"]])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
        browser(await proxy.admit(NetworkPolicy(), on_refused=told)) as one,
    ):
        for name in ("inside", "mapped", "meta"):
            assert (await one.get(f"http://{name}.example:{port}/")).status == 403
        for spelled in ("2130706433", "127.1", "0x7f000001", "[::ffff:7f00:1]", "0"):
            assert (await one.get(f"http://{spelled}:{port}/")).status == 403
    assert seen == []
    assert told[0] == (
        f"inside.example:{port}",
        "inside.example leads to 127.0.0.1 is a loopback address, which `allow` does not list",
    )


async def test_an_allowed_name_reaches_a_private_address_only_where_that_is_allowed_too() -> None:
    handler, seen = hello(b"inside")
    names = Names(inside=[["127.0.0.1"]])
    async with site(handler) as port, proxy_with(names) as proxy:
        by_name = ["inside.example:*", "localhost:*"]
        for extra, status in (([], 403), ([f"127.0.0.1:{port}"], 200)):
            policy = NetworkPolicy(allow=[*by_name, *extra])
            async with browser(await proxy.admit(policy)) as one:
                for name in ("inside.example", "localhost"):
                    assert (await one.get(f"http://{name}:{port}/")).status == status
    assert len(seen) == 2


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
async def test_no_policy_lets_anybody_into_this_process(bound: str) -> None:
    handler, seen = hello(b"secret")
    other, _ = hello(b"other")
    told = Told()
    policy = NetworkPolicy(private=True, allow=["*", "127.0.0.1"])
    names = Resolver(ManualClock(), lookup=Names(inside=[["127.0.0.1"]], out=[["192.0.2.1"]]))
    async with (
        site(handler, bound) as port,
        site(other) as free,
        FilteringProxy(port=port, resolver=names, connect_seconds=0.1) as proxy,
        browser(await proxy.admit(policy, on_refused=told)) as one,
    ):
        way_out = port_of(await proxy.admit(policy))
        spellings = ["127.0.0.1", "127.0.0.2", "0", "2130706433", "localhost", "inside.example"]
        for host in (*spellings, "[::1]", "[::]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"):
            assert (await one.get(f"http://{host}:{port}/")).status == 403
        assert (await one.get(f"http://127.0.0.1:{way_out}/")).status == 403
        assert len(told) == 11
        assert (await one.get(f"http://127.0.0.1:{free}/")).body == b"other"
        # The port is refused only on this machine.
        assert (await one.get(f"http://out.example:{port}/")).status in (502, 504)
        assert (await one.tunnel(f"localhost:{port}")).status == 403
    assert seen == []
    assert told[0][1] == f"127.0.0.1 at port {port} is Statehold itself"


async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    """The first answer is judged and used; the second, private one, is judged as well."""
    handler, seen = hello(b"secret")
    names = Names(rebound=[["127.0.0.9"], ["127.0.0.1"]])
    policy = NetworkPolicy(allow=["*", "127.0.0.9"])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
        browser(await proxy.admit(policy)) as one,
    ):
        assert (await one.get(f"http://rebound.example:{port}/")).status == 502
        assert (await one.get(f"http://rebound.example:{port}/")).status == 403
    assert seen == []
    assert len(names.asked) == 2


async def test_of_several_addresses_only_those_allowed_are_tried() -> None:
    here, seen_here = hello(b"here")
    there, seen_there = hello(b"there")
    names = Names(both=[["127.0.0.1", "127.0.0.2"]])
    policy = NetworkPolicy(allow=["*", "127.0.0.2"])
    async with (
        site(here, "127.0.0.1") as port,
        proxy_with(names) as proxy,
        browser(await proxy.admit(policy)) as one,
    ):
        assert (await one.get(f"http://both.example:{port}/")).status == 502
        async with site(there, "127.0.0.2") as other:
            assert (await one.get(f"http://both.example:{other}/")).body == b"there"
    assert seen_here == []
    assert len(seen_there) == 1


async def test_a_refused_name_is_not_even_looked_up() -> None:
    names = Names(good=[["127.0.0.1"]])
    policy = NetworkPolicy(allow=["good.example"], block=["bad.good.example"])
    async with proxy_with(names) as proxy, browser(await proxy.admit(policy)) as one:
        assert (await one.get("http://secret-in-a-name.evil.example/")).status == 403
        assert (await one.tunnel("bad.good.example:443")).status == 403
    assert names.asked == []


async def test_the_second_address_is_tried_when_the_first_does_not_answer() -> None:
    handler, _ = hello(b"hi")
    names = Names(two=[["127.0.0.3", "127.0.0.1"]], v6=[["::1", "127.0.0.1"]])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
        browser(await proxy.admit(LOCAL)) as one,
    ):
        assert (await one.get(f"http://two.example:{port}/")).body == b"hi"
        assert (await one.get(f"http://v6.example:{port}/")).body == b"hi"
        assert (await one.get(f"http://localhost:{port}/")).body == b"hi"


async def test_ipv6_sites_are_reached(proxy: FilteringProxy) -> None:
    handler, seen = hello(b"six")
    try:
        reachable = site(handler, "::1")
        async with reachable as port, browser(await proxy.admit(LOCAL)) as one:
            assert (await one.get(f"http://[::1]:{port}/")).body == b"six"
            assert (await one.tunnel(f"[::1]:{port}")).status == 200
    except OSError:
        pytest.skip("there is no IPv6 here")
    assert f"Host: [::1]:{port}".encode() in seen[0]


async def test_a_site_that_cannot_be_reached_is_told_apart_from_a_refusal() -> None:
    failed, refused = Told(), Told()
    async with proxy_with(Names()) as proxy:
        grant = await proxy.admit(LOCAL, on_failed=failed, on_refused=refused)
        async with browser(grant) as one:
            assert (await one.get("http://nowhere.example/")).status == 502
            assert (await one.tunnel("127.0.0.1:1")).status == 502
    assert refused == []
    assert failed == [
        ("nowhere.example", "the name nowhere.example has no address"),
        ("127.0.0.1:1", "127.0.0.1:1 refuses connections"),
    ]
    assert (grant.statistics().refused, grant.statistics().failed) == (0, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 407 Proxy\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000,
    ],
)
async def test_a_site_that_answers_nonsense_is_a_bad_gateway(
    proxy: FilteringProxy, answer: bytes
) -> None:
    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(answer)

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        assert (await one.get(f"http://127.0.0.1:{port}/")).status == 502


@pytest.mark.parametrize(
    "start", [b"Content-Length: 10\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"]
)
async def test_half_an_answer_does_not_look_like_a_whole_one(
    proxy: FilteringProxy, start: bytes
) -> None:
    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\n" + start)

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        await one.say(f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        with pytest.raises(anyio.BrokenResourceError):
            await read_rest(one.stream)
