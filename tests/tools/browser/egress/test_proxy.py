"""Who may use the filtering proxy, and what is left when it ends."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from rawhttp import (
    LOCAL,
    OVER,
    Browser,
    Told,
    browser,
    hello,
    site,
)

from statehold.tools.browser.egress.refusal import GREETING
from statehold.tools.browser.policy import NetworkPolicy
from statehold.tools.browser.proxy import FilteringProxy


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
            stranger.grant = grant
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
        one.grant = proxy.admit(LOCAL)
        await one.say(*lines, "Content-Length: 4", body=b"body")
        assert (await one.hear()).body == b"done"


async def test_one_connection_cannot_be_used_by_two_grants(proxy: FilteringProxy) -> None:
    handler, seen = hello(b"hi")
    async with site(handler) as port, browser(proxy, proxy.admit(LOCAL)) as one:
        assert (await one.get(f"http://127.0.0.1:{port}/")).status == 200
        one.grant = proxy.admit(LOCAL)
        assert (await one.get(f"http://127.0.0.1:{port}/")).status == 400
    assert len(seen) == 1


async def test_credentials_cannot_be_guessed_and_do_not_show(proxy: FilteringProxy) -> None:
    first, second = proxy.admit(LOCAL), proxy.admit(LOCAL)
    assert first.username != second.username
    assert first.password != second.password
    assert len(first.password) >= 40
    assert first.password not in repr(first)


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


async def test_a_greeting_is_answered_by_the_proxy_itself_and_needs_credentials(
    proxy: FilteringProxy,
) -> None:
    told = Told()
    grant = proxy.admit(NetworkPolicy(allow=["nothing.example"]), on_refused=told, on_failed=told)
    async with browser(proxy, None) as stranger:
        assert (await stranger.get(GREETING)).status == 407
    assert not grant.used
    async with browser(proxy, grant) as one:
        assert (await one.get(GREETING)).status == 200
    assert grant.used
    assert told == []
