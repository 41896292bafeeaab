"""The filtering proxy over raw sockets: requests, tunnels, refusals, bounds, and what is left at the end."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream
from rawhttp import OVER, Browser, browser, hello, read_head, read_rest, site

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.bandwidth import Bandwidth
from statehold.tools.browser.egress.resolver import NotFound, Resolver
from statehold.tools.browser.policy import NetworkPolicy
from statehold.tools.browser.proxy import FilteringProxy, Patience, UpstreamProxy

LOCAL = NetworkPolicy(allow=["*", "127.0.0.0/8", "::1"])


@pytest.fixture(autouse=True)
async def in_time() -> AsyncGenerator[None]:
    with anyio.fail_after(20):
        yield


@pytest.fixture
async def proxy() -> AsyncGenerator[FilteringProxy]:
    async with FilteringProxy() as listening:
        yield listening


class Told(list[tuple[str, str]]):
    def __call__(self, host: str, reason: str) -> None:
        self.append((host, reason))


# Who may use it.


async def test_nobody_is_served_without_the_credentials_of_a_grant(proxy: FilteringProxy) -> None:
    grant = proxy.admit(LOCAL)
    handler, seen = hello(b"hi")
    async with site(handler) as port:
        async with browser(proxy, None) as stranger:
            for wrong in ("", "Basic", "Basic !", "Basic eA==", "Bearer x", "Basic eDp5"):
                lines = [f"Proxy-Authorization: {wrong}"] if wrong else []
                answer = await stranger.get(f"http://127.0.0.1:{port}/", *lines)
                assert answer.status == 407
                assert answer.headers["proxy-authenticate"].startswith("Basic ")
            assert (await stranger.tunnel(f"127.0.0.1:{port}")).status == 407
            # The same connection serves a browser that learnt of it only now.
            stranger._grant = grant  # pyright: ignore[reportPrivateUsage]
            assert (await stranger.get(f"http://127.0.0.1:{port}/")).body == b"hi"
        grant.revoke()
        async with browser(proxy, grant) as late:
            assert (await late.get(f"http://127.0.0.1:{port}/")).status == 407
    assert len(seen) == 1


async def test_a_post_without_credentials_is_answered_and_can_be_repeated(
    proxy: FilteringProxy,
) -> None:
    handler, _ = hello(b"done")
    async with site(handler) as port, browser(proxy, None) as one:
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Content-Length: 4", body=b"body")
        assert (await one.hear()).status == 407
        one._grant = proxy.admit(LOCAL)  # pyright: ignore[reportPrivateUsage]
        await one.say(*lines, "Content-Length: 4", body=b"body")
        assert (await one.hear()).body == b"done"


async def test_one_connection_cannot_be_used_by_two_grants(proxy: FilteringProxy) -> None:
    handler, seen = hello(b"hi")
    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        assert (await one.get(f"http://127.0.0.1:{port}/")).status == 200
        one._grant = proxy.admit(LOCAL)  # pyright: ignore[reportPrivateUsage]
        assert (await one.get(f"http://127.0.0.1:{port}/")).status == 400
    assert len(seen) == 1


async def test_credentials_cannot_be_guessed_and_do_not_show(proxy: FilteringProxy) -> None:
    first, second = proxy.admit(LOCAL), proxy.admit(LOCAL)
    assert first.username != second.username
    assert first.password != second.password
    assert len(first.password) >= 40
    assert first.password not in repr(first)


# What goes on to the site.


async def test_a_request_arrives_in_origin_form_without_what_is_between_us(
    proxy: FilteringProxy,
) -> None:
    handler, seen = hello(b"hi")
    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        answer = await one.get(
            f"http://127.0.0.1:{port}/a?b=c%20d",
            "Proxy-Connection: keep-alive",
            "Connection: x-mine, close-not",
            "X-Mine: 1",
            "X-Site: 2",
            "TE: trailers",
            "Upgrade: h2c",
            "Keep-Alive: 5",
        )
        assert (answer.status, answer.body) == (200, b"hi")
    head = seen[0].decode()
    assert head.startswith(f"GET /a?b=c%20d HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n")
    assert "X-Site: 2" in head
    for absent in ("proxy", "x-mine", "\r\nte:", "upgrade", "connection", "keep-alive"):
        assert absent not in head.lower()


async def test_what_is_between_us_and_the_site_does_not_reach_the_browser(
    proxy: FilteringProxy,
) -> None:
    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(
            b"HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-End: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
            b"Proxy-Authenticate: Basic\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        answer = await one.get(f"http://127.0.0.1:{port}/")
    assert answer.body == b"hello"
    assert answer.headers["x-end"] == "2"
    assert not {"x-hop", "proxy-authenticate", "content-length"} & set(answer.headers)


async def test_connections_are_kept_on_both_sides(proxy: FilteringProxy) -> None:
    opened = 0
    answering, seen = hello(b"one", b"two", b"three")

    async def handler(stream: SocketStream) -> None:
        nonlocal opened
        opened += 1
        await answering(stream)

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        bodies = [(await one.get(f"http://127.0.0.1:{port}/{n}")).body for n in range(3)]
        assert bodies == [b"one", b"two", b"three"]
        await one.say(
            f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close"
        )
        assert (await one.hear()).headers["connection"] == "close"
        assert await read_rest(one.stream) == b""
    assert opened == 1
    assert len(seen) == 4


async def test_pipelined_requests_are_answered_in_order(proxy: FilteringProxy) -> None:
    handler, _ = hello(b"one", b"two")
    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
        request += one.authorization() + b"\r\n"
        await one.stream.send(request + request.replace(b"GET", b"HEAD"))
        assert (await one.hear()).body == b"one"
        assert (await one.hear("HEAD")).headers["content-length"] == "3"


async def test_a_kept_connection_that_ended_is_opened_again_for_a_request_that_may_be_repeated(
    proxy: FilteringProxy,
) -> None:
    seen: list[bytes] = []

    async def handler(stream: SocketStream) -> None:
        seen.append(await read_head(stream))
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        for _ in range(3):
            assert (await one.get(f"http://127.0.0.1:{port}/")).body == b"ok"
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Content-Length: 1", body=b"x")
        assert (await one.hear()).body == b"ok"
    assert len(seen) == 4


async def test_bodies_go_both_ways_in_any_framing(proxy: FilteringProxy) -> None:
    async def handler(stream: SocketStream) -> None:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += await stream.receive()
        await stream.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Transfer-Encoding: chunked")
        await one.stream.send(b"3\r\nabc\r\n")
        await one.stream.send(b"2\r\nde\r\n0\r\n\r\n")
        answer = await one.hear()
    assert answer.body == b"until the end"
    assert answer.headers["transfer-encoding"] == "chunked"


async def test_an_answer_arrives_as_it_comes(proxy: FilteringProxy) -> None:
    go_on = anyio.Event()

    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await go_on.wait()
        await stream.send(b"4\r\nlast\r\n0\r\n\r\n")

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        await one.say(f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        data = b""
        while b"first" not in data:
            data += await one.stream.receive()
        go_on.set()
        while not data.endswith(b"0\r\n\r\n"):
            data += await one.stream.receive()


async def test_an_answer_may_come_before_the_request_is_all_sent(proxy: FilteringProxy) -> None:
    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await read_rest(stream)

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Content-Length: 1000000", body=b"x" * 1000)
        assert (await one.hear()).status == 413


async def test_who_waits_to_be_asked_for_the_body_is_asked(proxy: FilteringProxy) -> None:
    handler, seen = hello(b"ok")
    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Content-Length: 1", "Expect: 100-continue")
        assert (await one.stream.receive()).startswith(b"HTTP/1.1 100")
        await one.stream.send(b"x")
        assert (await one.hear()).body == b"ok"
    assert len(seen) == 1


async def test_a_browser_that_hangs_up_ends_the_request(proxy: FilteringProxy) -> None:
    asked, ended = anyio.Event(), anyio.Event()

    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        asked.set()
        try:
            await read_rest(stream)
        finally:
            ended.set()

    async with site(handler) as port:
        async with browser(proxy, proxy.admit(LOCAL)) as one:
            await one.say(f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
            await asked.wait()
        await ended.wait()


async def test_a_reader_that_does_not_read_stops_the_site(proxy: FilteringProxy) -> None:
    grant = proxy.admit(LOCAL)
    sent = 0

    async def handler(stream: SocketStream) -> None:
        nonlocal sent
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send(b"x" * 65536)
            sent += 65536

    async with site(handler) as port, browser(proxy, grant) as one:
        await one.say(f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        before = -1
        while sent != before or sent == 0:  # until nothing moves any more
            before = sent
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
        assert sent < 64 * 2**20
        assert grant.statistics().received < 64 * 2**20


# What is no request.


HEAD = "GET http://127.0.0.1:{port}/ HTTP/1.1"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("GET / HTTP/1.1", "Host: a"), 400),
        (("GET https://127.0.0.1:{port}/ HTTP/1.1", "Host: 127.0.0.1:{port}"), 400),
        (("GET ftp://127.0.0.1:{port}/ HTTP/1.1", "Host: 127.0.0.1:{port}"), 400),
        (("GET http://u:p@127.0.0.1:{port}/ HTTP/1.1", "Host: 127.0.0.1:{port}"), 400),
        (("GET http:///x HTTP/1.1", "Host: 127.0.0.1:{port}"), 400),
        (("GET http://127.0.0.1:99999/ HTTP/1.1", "Host: 127.0.0.1:99999"), 400),
        (("GET http://[fe80::1%25eth0]/ HTTP/1.1", "Host: [fe80::1%25eth0]"), 400),
        (("CONNECT 127.0.0.1 HTTP/1.1", "Host: 127.0.0.1"), 400),
        (("CONNECT 127.0.0.1:{port} HTTP/1.1", "Host: 127.0.0.2:{port}"), 400),
        (("CONNECT 127.0.0.1:{port} HTTP/1.1", "Host: 127.0.0.1:{port}", "Content-Length: 1"), 400),
        ((HEAD,), 400),
        ((HEAD, "Host: evil.example"), 400),
        ((HEAD, "Host: 127.0.0.1"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "Host: 127.0.0.1:{port}"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "Host : evil.example"), 400),
        ((HEAD, "Host: x@127.0.0.1:{port}"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "Content-Length: 1", "Content-Length: 2"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "Content-Length: -1"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "Content-Length: 1_0"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "Transfer-Encoding: gzip, chunked"), 501),
        ((HEAD, "Host: 127.0.0.1:{port}", "Transfer-Encoding: chunked, identity"), 501),
        ((HEAD, "Host: 127.0.0.1:{port}", "X: a", " folded"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "X: a\nY: b"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "X: a\rY: b"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "X: a\0b"), 400),
        ((HEAD, "Host: 127.0.0.1:{port}", "no colon"), 400),
        (("GET  http://127.0.0.1:{port}/ HTTP/1.1", "Host: 127.0.0.1:{port}"), 400),
        (("GET http://127.0.0.1:{port}/ HTTP/1.0", "Transfer-Encoding: chunked"), 400),
        (("GET http://127.0.0.1:{port}/ HTTP/2.0", "Host: 127.0.0.1:{port}"), 505),
        (("\x16\x03\x01",), 400),
    ],
)
async def test_what_could_be_read_in_two_ways_is_refused(
    proxy: FilteringProxy, lines: Sequence[str], status: int
) -> None:
    handler, seen = hello(b"hi")
    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        await one.say(*(line.replace("{port}", str(port)) for line in lines))
        assert (await one.hear()).status == status
    assert seen == []


@pytest.mark.parametrize("body", [b"zz\r\nab\r\n", b"2\r\nabX", b"-1\r\n", b"2;x\nab\r\n0\r\n\r\n"])
async def test_a_body_in_bad_chunks_never_becomes_a_whole_request(
    proxy: FilteringProxy, body: bytes
) -> None:
    whole = False

    async def handler(stream: SocketStream) -> None:
        nonlocal whole
        data = b""
        while not whole:
            data += await stream.receive()
            whole = data.endswith(b"\r\n0\r\n\r\n")

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Transfer-Encoding: chunked", body=b"1\r\nx\r\n" + body)
        assert (await one.hear()).status == 400
    assert not whole


async def test_a_head_is_bounded_in_size_and_time(leaks: Any) -> None:
    patience = Patience(head=0.05, idle=0.05)
    async with FilteringProxy(patience=patience) as proxy:
        async with browser(proxy, None) as silent:
            assert await read_rest(silent.stream) == b""
        async with browser(proxy, None) as slow:
            await slow.stream.send(b"GET http://a.example/ HTTP/1.1\r\n")
            assert (await slow.hear()).status == 408
        async with browser(proxy, None) as partial:
            await partial.stream.send(b"GET ht")
            await partial.stream.send_eof()
            assert await read_rest(partial.stream) == b""
    async with FilteringProxy() as proxy, browser(proxy, None) as large:
        await large.say("GET http://a.example/ HTTP/1.1", f"X: {'x' * 70_000}")
        assert (await large.hear()).status == 431
    await leaks.check()


# What is refused.


async def test_a_refused_request_says_so_in_a_page_and_is_reported(proxy: FilteringProxy) -> None:
    told = Told()
    policy = NetworkPolicy(allow=["127.0.0.1", "here.example"], block=["*.evil.example"])
    grant = proxy.admit(policy, on_refused=told)
    async with browser(proxy, grant) as one:
        answer = await one.get("http://ads.evil.example/x?token=secret")
        assert answer.status == 403
        assert answer.headers["content-type"].startswith("text/html")
        assert b"ads.evil.example is blocked" in answer.body
        assert b"secret" not in answer.body
        assert grant.password.encode() not in answer.body
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

    async with browser(proxy, proxy.admit(NetworkPolicy(), on_refused=failing)) as one:
        assert (await one.get("http://127.0.0.1/")).status == 403
        assert (await one.get("http://127.0.0.1/")).status == 403
    assert "telling of a refused request failed" in caplog.text


class Names:
    """A resolver's source: what it says may change from one question to the next."""

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


async def test_a_name_that_leads_to_a_private_address_is_refused() -> None:
    handler, seen = hello(b"secret")
    told = Told()
    names = Names(inside=[["127.0.0.1"]], mapped=[["::ffff:127.0.0.1"]], meta=[["169.254.169.254"]])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
        browser(proxy, proxy.admit(NetworkPolicy(), on_refused=told)) as one,
    ):
        for name in ("inside", "mapped", "meta"):
            assert (await one.get(f"http://{name}.example:{port}/")).status == 403
        for spelled in ("2130706433", "127.1", "0x7f000001", "[::ffff:7f00:1]", "0"):
            assert (await one.get(f"http://{spelled}:{port}/")).status == 403
    assert seen == []
    assert told[0] == (
        f"inside.example:{port}",
        "inside.example leads to 127.0.0.1 is a loopback address",
    )


async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    """The first answer is judged and used; the second, private one, is judged as well."""
    handler, seen = hello(b"secret")
    names = Names(rebound=[["127.0.0.9"], ["127.0.0.1"]])
    policy = NetworkPolicy(allow=["*", "127.0.0.9"])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
        browser(proxy, proxy.admit(policy)) as one,
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
        browser(proxy, proxy.admit(policy)) as one,
    ):
        assert (await one.get(f"http://both.example:{port}/")).status == 502
        async with site(there, "127.0.0.2") as other:
            assert (await one.get(f"http://both.example:{other}/")).body == b"there"
    assert seen_here == []
    assert len(seen_there) == 1


async def test_a_refused_name_is_not_even_looked_up() -> None:
    names = Names(good=[["127.0.0.1"]])
    policy = NetworkPolicy(allow=["good.example"], block=["bad.good.example"])
    async with proxy_with(names) as proxy, browser(proxy, proxy.admit(policy)) as one:
        assert (await one.get("http://secret-in-a-name.evil.example/")).status == 403
        assert (await one.tunnel("bad.good.example:443")).status == 403
    assert names.asked == []


async def test_the_second_address_is_tried_when_the_first_does_not_answer() -> None:
    handler, _ = hello(b"hi")
    names = Names(two=[["127.0.0.3", "127.0.0.1"]], v6=[["::1", "127.0.0.1"]])
    async with (
        site(handler) as port,
        proxy_with(names) as proxy,
        browser(proxy, proxy.admit(LOCAL)) as one,
    ):
        assert (await one.get(f"http://two.example:{port}/")).body == b"hi"
        assert (await one.get(f"http://v6.example:{port}/")).body == b"hi"
        assert (await one.get(f"http://localhost:{port}/")).body == b"hi"


async def test_ipv6_sites_are_reached(proxy: FilteringProxy) -> None:
    handler, seen = hello(b"six")
    try:
        reachable = site(handler, "::1")
        async with reachable as port, browser(proxy, proxy.admit(LOCAL)) as one:
            assert (await one.get(f"http://[::1]:{port}/")).body == b"six"
            assert (await one.tunnel(f"[::1]:{port}")).status == 200
    except OSError:
        pytest.skip("there is no IPv6 here")
    assert f"Host: [::1]:{port}".encode() in seen[0]


async def test_a_site_that_cannot_be_reached_is_told_apart_from_a_refusal() -> None:
    failed, refused = Told(), Told()
    async with proxy_with(Names()) as proxy:
        grant = proxy.admit(LOCAL, on_failed=failed, on_refused=refused)
        async with browser(proxy, grant) as one:
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

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
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

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        await one.say(f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        with pytest.raises(anyio.BrokenResourceError):
            await read_rest(one.stream)


# Tunnels.


async def echo(stream: SocketStream) -> None:
    while True:
        await stream.send(await stream.receive())


async def test_a_tunnel_carries_bytes_both_ways(proxy: FilteringProxy) -> None:
    grant = proxy.admit(LOCAL)
    async with site(echo) as port, browser(proxy, grant) as one:
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
    async with site(echo) as port, browser(proxy, proxy.admit(LOCAL)) as one:
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

    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        await one.tunnel(f"127.0.0.1:{port}")
        await one.stream.send(b"this")
        await one.stream.send_eof()
        assert await read_rest(one.stream) == b"you said this"


async def test_revoking_ends_tunnels_and_requests_at_once(
    proxy: FilteringProxy, leaks: Any
) -> None:
    grant, other = proxy.admit(LOCAL), proxy.admit(LOCAL)
    async with site(echo) as port, browser(proxy, grant) as one, browser(proxy, other) as two:
        await one.tunnel(f"127.0.0.1:{port}")
        await two.tunnel(f"127.0.0.1:{port}")
        grant.revoke()
        grant.revoke()
        with pytest.raises(OVER):
            await one.stream.receive()
        await two.stream.send(b"still")
        assert await two.stream.receive() == b"still"
    other.revoke()
    await leaks.check()


# Bounds.


async def test_connections_are_bounded_per_grant_and_in_all() -> None:
    async with site(echo) as port, proxy_with(Names(), connections_per_grant=1) as proxy:
        grant = proxy.admit(LOCAL)
        async with browser(proxy, grant) as one, browser(proxy, grant) as two:
            assert (await one.tunnel(f"127.0.0.1:{port}")).status == 200
            assert (await two.tunnel(f"127.0.0.1:{port}")).status == 503
            async with browser(proxy, proxy.admit(LOCAL)) as three:
                assert (await three.tunnel(f"127.0.0.1:{port}")).status == 200
    async with proxy_with(Names(), connections=1) as proxy, browser(proxy, None) as one:
        assert (await one.get("http://a.example/")).status == 407
        async with browser(proxy, None) as two:
            with pytest.raises(OVER):
                await two.stream.receive()


async def test_a_response_that_announces_too_much_is_refused(proxy: FilteringProxy) -> None:
    told = Told()
    policy = NetworkPolicy(private=True, response_bytes=1000)
    handler, _ = hello(b"x" * 1001, b"x" * 1000)
    async with site(handler) as port, browser(proxy, proxy.admit(policy, on_refused=told)) as one:
        assert (await one.get(f"http://127.0.0.1:{port}/", method="HEAD")).status == 200
    async with site(handler) as port, browser(proxy, proxy.admit(policy, on_refused=told)) as one:
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
    async with site(handler) as port, browser(proxy, proxy.admit(policy, on_refused=told)) as one:
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
        browser(proxy, proxy.admit(policy, on_refused=told)) as one,
    ):
        await one.tunnel(f"127.0.0.1:{port}")
        for _ in range(3):  # three responses, as far as anybody can tell
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
    await bandwidth.take(250)  # what was saved up
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


async def test_all_connections_of_a_grant_share_its_bandwidth() -> None:
    clock = ManualClock()
    policy = NetworkPolicy(private=True, bytes_per_second=4000)
    handler, _ = hello(b"x" * 2000)
    async with FilteringProxy(clock=clock) as proxy, site(handler) as port:
        grant = proxy.admit(policy)
        started = clock.now()

        async def fetch() -> None:
            async with browser(proxy, grant) as one:
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


# Names.


async def test_a_name_is_asked_for_once_at_a_time_and_kept_a_while() -> None:
    clock = ManualClock()
    names = Names(a=[["192.0.2.1"]])
    resolver = Resolver(clock, lookup=names)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(resolver.addresses, "a.example")
    assert len(names.asked) == 1
    clock.advance(60)
    assert [str(a) for a in await resolver.addresses("a.example")] == ["192.0.2.1"]
    assert len(names.asked) == 2


async def test_a_name_server_that_does_not_answer_is_not_waited_for() -> None:
    import threading

    answer = threading.Event()

    def lookup(name: str) -> Sequence[str]:
        answer.wait(10)
        return ["192.0.2.1"]

    resolver = Resolver(ManualClock(), lookup=lookup, seconds=0.05, at_once=1)
    try:
        for name in ("a.example", "b.example"):
            with pytest.raises(NotFound):
                await resolver.addresses(name)
    finally:
        answer.set()
    while True:  # the late answer frees the only thread
        try:
            assert await resolver.addresses("a.example")
            break
        except NotFound:
            continue


# The proxy of the user's network.


async def test_requests_leave_by_the_proxy_upstream(proxy: FilteringProxy) -> None:
    seen: list[bytes] = []

    async def upstream(stream: SocketStream) -> None:
        seen.append(await read_head(stream))
        if seen[-1].startswith(b"CONNECT refused"):
            await stream.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        elif seen[-1].startswith(b"CONNECT"):
            await stream.send(b"HTTP/1.1 200 OK\r\n\r\nfirst")
            await echo(stream)
        else:
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nvia")

    async with site(upstream) as port:
        way = UpstreamProxy.parse(f"http://me:p%40ss@127.0.0.1:{port}")
        told = Told()
        grant = proxy.admit(NetworkPolicy(block=["bad.example"]), upstream=way, on_refused=told)
        async with browser(proxy, grant) as one:
            assert (await one.get("http://some.example/a")).body == b"via"
            assert (await one.get("http://bad.example/")).status == 403
            assert (await one.get("http://169.254.169.254/")).status == 403
            assert (await one.tunnel("refused.example:443")).status == 502
            await one.say("CONNECT some.example:443 HTTP/1.1", "Host: some.example:443")
            data = b""
            while not data.endswith(b"first"):
                data += await one.stream.receive()
            await one.stream.send(b"on")
            assert await one.stream.receive() == b"on"
    assert seen[0].startswith(b"GET http://some.example/a HTTP/1.1\r\nHost: some.example\r\n")
    assert all(b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head for head in seen)
    assert all(grant.username.encode() not in head for head in seen)
    assert len(told) == 2


@pytest.mark.parametrize(
    "url",
    [
        "socks5://host:1",
        "https://host",
        "host:80",
        "http://",
        "http://host/path",
        "http://h:99999",
    ],
)
async def test_a_proxy_upstream_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="write http://host:port"):
        UpstreamProxy.parse(url)


async def test_the_password_of_the_proxy_upstream_does_not_show() -> None:
    assert "hidden" not in repr(UpstreamProxy.parse("http://me:hidden@host:3128"))
    with pytest.raises(ValueError, match=r"^(?!.*hidden)"):
        UpstreamProxy.parse("https://me:hidden@host:3128")


# The end.


async def test_leaving_ends_everything(leaks: Any) -> None:
    async def stuck(stream: SocketStream) -> None:
        await anyio.sleep_forever()

    async with site(stuck) as port:
        async with FilteringProxy() as proxy:
            streams: list[Browser] = []
            for _ in range(3):
                connected = await anyio.connect_tcp("127.0.0.1", int(proxy.server[-5:].strip(":")))
                streams.append(Browser(connected, proxy.admit(LOCAL)))
            await streams[0].tunnel(f"127.0.0.1:{port}")
            await streams[1].say(
                f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}"
            )
            assert proxy.connections >= 1
        assert proxy.connections == 0
        for one in streams:
            with pytest.raises(OVER):
                await one.stream.receive()
            await one.stream.aclose()
        with pytest.raises(RuntimeError):
            proxy.admit(LOCAL)
    await leaks.check()


async def test_an_error_of_its_user_passes_through_as_it_is(leaks: Any) -> None:
    with pytest.raises(KeyError):
        async with FilteringProxy():
            raise KeyError
    with anyio.move_on_after(0.01):
        async with FilteringProxy() as proxy, browser(proxy, None):
            await anyio.sleep_forever()
    await leaks.check()
