"""Requests that the proxy does not take, because two readers could read them differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from anyio.abc import SocketStream
from rawhttp import (
    LOCAL,
    browser,
    hello,
    read_rest,
    site,
)

from statehold.tools.browser.egress.proxy import ClientTimeouts, FilteringProxy

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
    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
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

    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Transfer-Encoding: chunked", body=b"1\r\nx\r\n" + body)
        assert (await one.hear()).status == 400
    assert not whole


async def test_a_head_is_bounded_in_size_and_time(leaks: Any) -> None:
    patience = ClientTimeouts(head=0.05, idle=0.05)
    async with FilteringProxy(patience=patience) as proxy:
        grant = await proxy.admit(LOCAL)
        async with browser(grant) as silent:
            assert await read_rest(silent.stream) == b""
        async with browser(grant) as slow:
            await slow.stream.send(b"GET http://a.example/ HTTP/1.1\r\n")
            assert (await slow.hear()).status == 408
        async with browser(grant) as partial:
            await partial.stream.send(b"GET ht")
            await partial.stream.send_eof()
            assert await read_rest(partial.stream) == b""
    async with FilteringProxy() as proxy, browser(await proxy.admit(LOCAL)) as large:
        await large.say("GET http://a.example/ HTTP/1.1", f"X: {'x' * 70_000}")
        assert (await large.hear()).status == 431
    await leaks.check()
