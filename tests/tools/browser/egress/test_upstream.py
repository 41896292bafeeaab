"""The proxy of the user's network."""

from __future__ import annotations

import pytest
from anyio.abc import SocketStream
from support.proxy_ends import Refusals, browser, connect, echo, read_head, site

from statehold.tools.browser.egress.policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy, UpstreamProxy
from statehold.tools.browser.egress.socks import Reply


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
        assert await connect(access, "bad.example:80") is Reply.NOT_ALLOWED
        assert await connect(access, "169.254.169.254:80") is Reply.NOT_ALLOWED
        assert await connect(access, "refused.example:443") is Reply.HOST_UNREACHABLE
        async with browser(access) as one:
            assert await one.connect("some.example:80") is Reply.SUCCEEDED
            assert await one.receive_exactly(5) == b"first"
            await one.stream.send(b"on")
            assert await one.receive_exactly(2) == b"on"
    assert heads[1].startswith(b"CONNECT some.example:80 HTTP/1.1\r\nHost: some.example:80\r\n")
    assert all(b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head for head in heads)
    assert len(refusals) == 2


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
            assert await connect(access, f"{host}:8080") is Reply.NOT_ALLOWED
        assert not heads
        access = await proxy.admit(NetworkPolicy(private=True), upstream=through)
        assert await connect(access, f"{host}:8080") is Reply.SUCCEEDED


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
