"""The SOCKS5 handshake of browsers with the proxy."""

from __future__ import annotations

import pytest
from support.proxy_ends import LOCAL, OVER, browser, hello, read_rest, site

from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.egress.socks import SocksReply

GREETING = b"\5\1\0"
AGREED = b"\5\0"


def reply(code: SocksReply) -> bytes:
    return bytes((5, code, 0, 1)) + bytes(6)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"\4\1\0\x50\x7f\0\0\1\0", b"\5\xff"),
        (b"\5\1\2", b"\5\xff"),
        (GREETING + b"\5\2\0\1\x7f\0\0\1\0\x50", AGREED + reply(SocksReply.COMMAND_NOT_SUPPORTED)),
        (GREETING + b"\5\3\0\1\x7f\0\0\1\0\x50", AGREED + reply(SocksReply.COMMAND_NOT_SUPPORTED)),
        (GREETING + b"\5\1\0\2\x7f\0\0\1\0\x50", AGREED + reply(SocksReply.ADDRESS_NOT_SUPPORTED)),
        (GREETING + b"\5\1\0\3\4a..b\0\x50", AGREED + reply(SocksReply.ADDRESS_NOT_SUPPORTED)),
        (GREETING + b"\5\1\0\3\2\xc3\xbc\0\x50", AGREED + reply(SocksReply.ADDRESS_NOT_SUPPORTED)),
        (GREETING + b"\5\1\0\3\1a\0\0", AGREED + reply(SocksReply.ADDRESS_NOT_SUPPORTED)),
        (GREETING + b"\5\1\0\1\x7f\0\0\1\0\1", AGREED + reply(SocksReply.HOST_UNREACHABLE)),
        (GREETING + b"\5\1\0\3", AGREED),
    ],
    ids=[
        *("version 4", "password", "bind", "udp", "kind of address", "empty label"),
        *("not ascii", "port 0", "refused connection", "half a request"),
    ],
)
async def test_a_handshake_that_leads_nowhere_is_answered_and_ended(
    proxy: FilteringProxy, sent: bytes, answer: bytes
) -> None:
    async with browser(await proxy.admit(LOCAL)) as one:
        await one.stream.send(sent)
        await one.stream.send_eof()
        assert await read_rest(one.stream) == answer


async def test_an_address_may_come_as_bytes(proxy: FilteringProxy) -> None:
    handler, _ = hello(b"hi")
    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        await one.stream.send(GREETING + b"\5\1\0\1\x7f\0\0\1" + port.to_bytes(2))
        assert await one.receive_exactly(12) == AGREED + reply(SocksReply.SUCCEEDED)
        assert await one.get() == b"hi"


async def test_a_handshake_that_takes_too_long_is_ended() -> None:
    async with (
        FilteringProxy(handshake_seconds=0.05) as proxy,
        browser(await proxy.admit(LOCAL)) as one,
    ):
        await one.stream.send(b"\5\2\0")
        with pytest.raises(OVER):
            await one.stream.receive()
