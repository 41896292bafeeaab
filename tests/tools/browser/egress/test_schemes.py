"""Entries with a scheme: whether a connection uses TLS is seen in its first byte, before the site is asked for anything."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from support.browsing import opened, running, section
from support.proxy_ends import Browser, Refusals, browser, echo, hello, read_rest, site
from support.selection import matrix

from statehold.tools.browser.egress.network_policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy, UpstreamProxy
from statehold.tools.browser.egress.socks import SocksReply

TLS = b"\x16\x03\x01\x00\x05hello"
PLAIN = b"GET / HTTP/1.1\r\n\r\n"


async def require_end(one: Browser) -> None:
    """Check that a connection ends without an answer."""
    with anyio.fail_after(5), suppress(anyio.BrokenResourceError):
        assert await read_rest(one.stream) == b""


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("form", ["allow", "block"])
async def test_an_entry_with_a_scheme_holds_for_connections_of_that_scheme_only(
    proxy: FilteringProxy, scheme: str, form: str
) -> None:
    listed, other = (PLAIN, TLS) if scheme == "http" else (TLS, PLAIN)
    passes, refused = (listed, other) if form == "allow" else (other, listed)
    policy = NetworkPolicy.model_validate({"private": True, form: [f"{scheme}://127.0.0.1:*"]})
    refusals = Refusals()
    access = await proxy.admit(policy, on_refused=refusals)
    async with site(echo) as port:
        for early in (passes, b""):
            async with browser(access) as one:
                assert await one.connect(f"127.0.0.1:{port}", early) is SocksReply.SUCCEEDED
                await one.stream.send(passes)
                assert await one.receive_exactly(len(early + passes)) == early + passes
        assert refusals == []
        async with browser(access) as one:
            assert await one.connect(f"127.0.0.1:{port}", refused) is SocksReply.SUCCEEDED
            await require_end(one)
    name = f"{'https' if refused is TLS else 'http'}://127.0.0.1:{port}"
    why = f"{name} is {'not among the allowed hosts' if form == 'allow' else 'blocked'}"
    assert refusals == [(f"127.0.0.1:{port}", why)]
    assert access.statistics().bytes_received == 2 * len(passes) + len(passes)


async def test_a_refused_scheme_opens_no_connection_to_the_site(proxy: FilteringProxy) -> None:
    handler, connected = hello(b"secret")
    access = await proxy.admit(NetworkPolicy(allow=["http://127.0.0.1:*"]))
    async with site(handler) as port, browser(access) as one:
        await one.connect(f"127.0.0.1:{port}", TLS)
        await require_end(one)
    assert connected == []
    assert access.statistics().bytes_sent == 0


@pytest.mark.parametrize(
    ("policy", "first", "why"),
    matrix(
        (NetworkPolicy(block=["https://no.invalid"]), TLS, "https://no.invalid is blocked"),
        (NetworkPolicy(block=["http://no.invalid:*"]), PLAIN, "http://no.invalid is blocked"),
        (
            NetworkPolicy(allow=["http://no.invalid:*"]),
            TLS,
            "https://no.invalid is not among the allowed hosts",
        ),
        (
            NetworkPolicy(allow=["https://yes.invalid"]),
            TLS,
            "https://no.invalid is not among the allowed hosts",
        ),
    ),
)
async def test_a_site_of_a_refused_scheme_is_not_looked_up(
    proxy: FilteringProxy, policy: NetworkPolicy, first: bytes, why: str
) -> None:
    refusals, failures = Refusals(), Refusals()
    access = await proxy.admit(policy, on_refused=refusals, on_failed=failures)
    async with browser(access) as one:
        assert await one.connect("no.invalid:443", first) is SocksReply.SUCCEEDED
        await require_end(one)
    assert refusals == [("no.invalid", why)]
    assert failures == []


@pytest.mark.thorough
async def test_a_proxy_upstream_is_not_asked_for_a_refused_scheme(proxy: FilteringProxy) -> None:
    handler, connected = hello(b"secret")
    async with site(handler) as port:
        upstream = UpstreamProxy.parse(f"http://127.0.0.1:{port}")
        access = await proxy.admit(NetworkPolicy(block=["https://no.invalid"]), upstream=upstream)
        async with browser(access) as one:
            await one.connect("no.invalid:443", TLS)
            await require_end(one)
    assert connected == []


@pytest.mark.thorough
async def test_a_site_of_an_allowed_scheme_that_cannot_be_reached_is_a_failure(
    proxy: FilteringProxy,
) -> None:
    refusals, failures = Refusals(), Refusals()
    policy = NetworkPolicy(allow=["https://no.invalid"])
    access = await proxy.admit(policy, on_refused=refusals, on_failed=failures)
    async with browser(access) as one:
        await one.connect("no.invalid:443", TLS)
        await require_end(one)
    assert refusals == []
    assert failures == [("no.invalid", "the name no.invalid has no address")]


async def test_an_address_that_is_allowed_for_one_scheme_is_refused_to_a_name_by_the_other(
    proxy: FilteringProxy,
) -> None:
    refusals = Refusals()
    policy = NetworkPolicy(allow=["localhost", "http://127.0.0.1:*", "http://[::1]:*"])
    access = await proxy.admit(policy, on_refused=refusals)
    async with site(echo) as port:
        async with browser(access) as one:
            await one.connect(f"localhost:{port}", PLAIN)
            assert await one.receive_exactly(len(PLAIN)) == PLAIN
        async with browser(access) as one:
            await one.connect(f"localhost:{port}", TLS)
            await require_end(one)
    assert len(refusals) == 1


@pytest.mark.thorough
async def test_a_page_gets_no_tunnel_for_a_scheme_that_is_not_allowed(
    shell: str, lab: str, tmp_path: Path
) -> None:
    port = lab.rpartition(":")[2]
    async with (
        running(tmp_path, shell, allow=[f"http://127.0.0.1:{port}"]) as service,
        opened(service) as browse,
    ):
        await browse.text("navigate", url=f"{lab}/frame")
        secure = f"https://127.0.0.1:{port}/"
        script = f"() => fetch('{secure}').then(() => 1, error => error.name)"
        text = await browse.text("evaluate", function=script)
        why = f"Not allowed to reach 127.0.0.1:{port}: https://127.0.0.1:{port} is not among the allowed hosts."
        assert section(text, "Result") == '"TypeError"'
        assert why in section(text, "Events")
        error = await browse.error("navigate", url=secure)
        assert section(error, "Error") == f"{secure} could not be opened: {why}"
