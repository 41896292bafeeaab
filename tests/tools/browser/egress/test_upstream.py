"""The proxy of the user's network."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from anyio.abc import SocketStream
from support.proxy_ends import Refusals, browser, connect, echo, read_head, site

from statehold.tools.browser.egress.network_policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy, UpstreamProxy
from statehold.tools.browser.egress.socks import SocksReply


async def test_connections_leave_by_the_proxy_upstream(proxy: FilteringProxy) -> None:
    heads: list[bytes] = []

    async def upstream(stream: SocketStream) -> None:
        heads.append(await read_head(stream))
        if heads[-1].startswith(b"CONNECT refused"):
            await stream.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        else:
            await stream.send(b"HTTP/1.1 200 OK\r\n\r\nfirst")
            await echo(stream)

    async with site(upstream) as port:
        through = UpstreamProxy.parse(f"http://me:p%40ss@127.0.0.1:{port}")
        refusals = Refusals()
        access = await proxy.admit(
            NetworkPolicy(block=["bad.example"]), upstream=through, on_refused=refusals
        )
        assert await connect(access, "bad.example:443") is SocksReply.NOT_ALLOWED
        assert await connect(access, "169.254.169.254:443") is SocksReply.NOT_ALLOWED
        assert await connect(access, "refused.example:443") is SocksReply.HOST_UNREACHABLE
        async with browser(access) as one:
            assert await one.connect("some.example:443") is SocksReply.SUCCEEDED
            assert await one.receive_exactly(5) == b"first"
            await one.stream.send(b"on")
            assert await one.receive_exactly(2) == b"on"
    assert heads[1].startswith(b"CONNECT some.example:443 HTTP/1.1\r\nHost: some.example:443\r\n")
    assert all(b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head for head in heads)
    assert len(refusals) == 2


async def receive_all(stream: SocketStream, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += await stream.receive()
    return received


async def test_requests_without_tls_need_no_tunnel(proxy: FilteringProxy) -> None:
    requests = [
        b"GET /a?b HTTP/1.1\r\nHost: some.example:8080\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 20\r\n\r\nGET / HTTP/1.1\r\n\r\n..",
        b"GET /c HTTP/1.1\r\nHost: some.example\r\n\r\n",
    ]
    login = b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n"
    expected = [
        b"GET http://some.example:8080/a?b HTTP/1.1\r\n%sHost: some.example:8080\r\n\r\n" % login,
        b"POST http://some.example:8080/ HTTP/1.1\r\n%s" % login
        + requests[1].partition(b"\r\n")[2],
        b"GET http://some.example:8080/c HTTP/1.1\r\n%sHost: some.example\r\n\r\n" % login,
    ]
    seen = anyio.Event()

    async def upstream(stream: SocketStream) -> None:
        for request in expected:
            assert await receive_all(stream, len(request)) == request
            await stream.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        seen.set()

    async with site(upstream) as port:
        through = UpstreamProxy.parse(f"http://me:p%40ss@127.0.0.1:{port}")
        access = await proxy.admit(NetworkPolicy(), upstream=through)
        async with browser(access) as one:
            assert await one.connect("some.example:8080") is SocksReply.SUCCEEDED
            for request in requests:
                for byte in range(0, len(request), 7):
                    await one.stream.send(request[byte : byte + 7])
                assert await one.receive_exactly(27) == b"HTTP/1.1 204 No Content\r\n\r\n"
            await seen.wait()


@pytest.mark.parametrize(
    "first", [b"\x16\x03\x01", b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"]
)
async def test_tls_and_websockets_at_other_ports_get_a_tunnel(
    proxy: FilteringProxy, first: bytes
) -> None:
    async def upstream(stream: SocketStream) -> None:
        assert (await read_head(stream)).startswith(b"CONNECT some.example:80 HTTP/1.1\r\n")
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await echo(stream)

    async with site(upstream) as port:
        through = UpstreamProxy.parse(f"http://127.0.0.1:{port}")
        access = await proxy.admit(NetworkPolicy(), upstream=through)
        async with browser(access) as one:
            assert await one.connect("some.example:80") is SocksReply.SUCCEEDED
            await one.stream.send(first)
            assert await one.receive_exactly(len(first)) == first


@pytest.mark.thorough
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET http://other.example/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"x" * 400_000,
    ],
)
async def test_what_is_no_request_of_a_browser_reaches_no_proxy(
    proxy: FilteringProxy, request_bytes: bytes
) -> None:
    received: list[bytes] = []

    async def upstream(stream: SocketStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            received.append(await stream.receive())

    async with site(upstream) as port:
        access = await proxy.admit(
            NetworkPolicy(), upstream=UpstreamProxy.parse(f"http://127.0.0.1:{port}")
        )
        async with browser(access) as one:
            assert await one.connect("some.example:80") is SocksReply.SUCCEEDED
            with suppress(anyio.BrokenResourceError):
                await one.stream.send(request_bytes)
            with (
                anyio.fail_after(10),
                pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)),
            ):
                await one.stream.receive()
    assert received == []


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "x.localhost"])
async def test_loopback_is_not_reached_by_its_names_upstream(
    proxy: FilteringProxy, host: str
) -> None:
    heads: list[bytes] = []

    async def upstream(stream: SocketStream) -> None:
        heads.append(await read_head(stream))
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")

    async with site(upstream) as port:
        through = UpstreamProxy.parse(f"http://127.0.0.1:{port}")
        refused = [NetworkPolicy(), NetworkPolicy(private=True, block=["127.0.0.0/8"])]
        for policy in refused:
            access = await proxy.admit(policy, upstream=through)
            assert await connect(access, f"{host}:8080") is SocksReply.NOT_ALLOWED
        assert not heads
        access = await proxy.admit(NetworkPolicy(private=True), upstream=through)
        assert await connect(access, f"{host}:8080") is SocksReply.SUCCEEDED


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
