"""The proxy of the user's network."""

from __future__ import annotations

import pytest
from anyio.abc import SocketStream
from rawhttp import (
    Told,
    browser,
    echo,
    hello,
    read_head,
    site,
)

from statehold.tools.browser.egress.policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy, UpstreamProxy


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
        grant = await proxy.admit(
            NetworkPolicy(block=["bad.example"]), upstream=way, on_refused=told
        )
        async with browser(grant) as one:
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
    assert len(told) == 2


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "x.localhost"])
async def test_loopback_is_not_reached_by_its_names_upstream(
    proxy: FilteringProxy, host: str
) -> None:
    handler, seen = hello(b"via")
    async with site(handler) as port:
        way = UpstreamProxy.parse(f"http://127.0.0.1:{port}")
        refused = [NetworkPolicy(), NetworkPolicy(private=True, block=["127.0.0.0/8"])]
        for policy in refused:
            async with browser(await proxy.admit(policy, upstream=way)) as one:
                assert (await one.get(f"http://{host}:8080/")).status == 403
                assert (await one.tunnel(f"{host}:443")).status == 403
        assert not seen
        async with browser(await proxy.admit(NetworkPolicy(private=True), upstream=way)) as one:
            assert (await one.get(f"http://{host}:8080/")).body == b"via"


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
