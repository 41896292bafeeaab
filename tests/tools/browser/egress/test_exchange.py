"""Requests that the proxy reads, and their answers."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from anyio.abc import SocketStream
from rawhttp import (
    LOCAL,
    browser,
    hello,
    read_head,
    read_rest,
    site,
)

from statehold.tools.browser.egress.proxy import FilteringProxy


async def test_a_request_arrives_in_origin_form_without_what_is_between_us(
    proxy: FilteringProxy,
) -> None:
    handler, seen = hello(b"hi")
    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
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

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
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

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
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
    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
        await one.stream.send(request + b"\r\n" + request.replace(b"GET", b"HEAD") + b"\r\n")
        assert (await one.hear()).body == b"one"
        assert (await one.hear("HEAD")).headers["content-length"] == "3"


async def test_a_kept_connection_that_ended_is_opened_again_for_a_request_that_may_be_repeated(
    proxy: FilteringProxy,
) -> None:
    seen: list[bytes] = []

    async def handler(stream: SocketStream) -> None:
        seen.append(await read_head(stream))
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
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

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
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

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
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

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Content-Length: 1000000", body=b"x" * 1000)
        assert (await one.hear()).status == 413


async def test_who_waits_to_be_asked_for_the_body_is_asked(proxy: FilteringProxy) -> None:
    handler, seen = hello(b"ok")
    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
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
        async with browser(await proxy.admit(LOCAL)) as one:
            await one.say(f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
            await asked.wait()
        await ended.wait()


async def test_a_reader_that_does_not_read_stops_the_site(proxy: FilteringProxy) -> None:
    grant = await proxy.admit(LOCAL)
    sent = 0

    async def handler(stream: SocketStream) -> None:
        nonlocal sent
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send(b"x" * 65536)
            sent += 65536

    async with site(handler) as port, browser(grant) as one:
        await one.say(f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        before = -1
        while sent != before or sent == 0:  # until nothing moves any more
            before = sent
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
        assert sent < 64 * 2**20
        assert grant.statistics().received < 64 * 2**20
