"""Requests to URLs of callers go to public addresses only."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import anyio
import pytest
from support.event_receiver import EventReceiver, event_receiver
from support.waiting import until

from statehold.sessions.clock import SystemClock
from statehold.tools import outbound
from statehold.tools.browser.egress.resolver import Resolver
from statehold.tools.outbound import DestinationRefused, OutboundAnswer, OutboundClient

NAME = "hooks.example"


@pytest.fixture
def receiver() -> Generator[EventReceiver]:
    with event_receiver() as running:
        yield running


async def post(url: str, *addresses: Sequence[str], allow_loopback: bool = False) -> OutboundAnswer:
    """Send a request. The n-th lookup of a name gives the n-th addresses."""
    lookups = iter(addresses)
    resolver = Resolver(SystemClock(), lookup=lambda name: next(lookups), keep_seconds=0.0)
    client = OutboundClient(resolver, allow_loopback=allow_loopback)
    return await client.request(
        "POST", url, asker="", headers={}, answer_bytes=10, content=b'{"a": 1}'
    )


async def test_askers_without_answers_leave_places_to_others(
    receiver: EventReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound, "MAX_REQUESTS", 10)
    monkeypatch.setattr(outbound, "MAX_OF_ASKER", 1)
    client = OutboundClient(Resolver(SystemClock()), allow_loopback=True)

    async def ask(asker: str, url: str) -> OutboundAnswer:
        return await client.request(
            "POST", url, asker=asker, headers={}, answer_bytes=10, content=b"{}"
        )

    with event_receiver() as silent:
        silent.released.clear()
        async with anyio.create_task_group() as tasks:
            for number in range(18):
                tasks.start_soon(ask, f"a{number // 2}", silent.url)
            await until(lambda: silent.requests == 9)
            with anyio.fail_after(3):
                assert (await ask("b", receiver.url)).status == 204
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["169.254.169.254"],
        ["fe80::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["10.0.0.1"],
        ["0.0.0.0"],
        ["8.8.8.8", "127.0.0.1"],
    ],
)
async def test_a_name_with_a_private_address_is_not_reached(
    receiver: EventReceiver, addresses: list[str]
) -> None:
    port = receiver.server_address[1]
    with pytest.raises(DestinationRefused, match="not public"):
        await post(f"https://{NAME}:{port}/hook", addresses)
    assert receiver.requests == 0


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "0x7f.0.0.1", "0"),
        *("0.0.0.0", "169.254.169.254", "2852039166", "[::]", "[::1]", "[::ffff:7f00:1]"),
        *("[::ffff:169.254.169.254]", "[2002:7f00:1::]", "localhost", "LOCALHOST", "a.localhost"),
    ],
)
async def test_no_spelling_of_a_private_address_is_reached(
    receiver: EventReceiver, host: str
) -> None:
    """The system's resolver reads those that are no names."""
    client = OutboundClient(Resolver(SystemClock()), allow_loopback=False)
    port = receiver.server_address[1]
    with pytest.raises(DestinationRefused, match="not public"):
        await client.request(
            "POST", f"https://{host}:{port}/hook", asker="", headers={}, answer_bytes=10
        )
    assert receiver.requests == 0


async def test_a_second_lookup_changes_nothing(receiver: EventReceiver) -> None:
    """The address that was checked is the one that is connected to: the lookup of another would end the iterator."""
    url = receiver.url.replace("127.0.0.1", NAME)
    answer = await post(url, ["127.0.0.1"], allow_loopback=True)
    assert (answer.status, receiver.requests) == (204, 1)


async def test_a_redirect_is_not_followed(receiver: EventReceiver) -> None:
    receiver.status = 307
    answer = await post(receiver.url, ["127.0.0.1"], allow_loopback=True)
    assert (answer.status, receiver.requests) == (307, 1)


@pytest.mark.parametrize(
    "url",
    [
        "http://{host}/hook",
        "https://me:secret@{host}/hook",
        "https://{host}/hook#a",
        "https://{host}\\@hooks.example/",
        "https:///hook",
        "file:///etc/passwd",
        "https://{host}:x/hook",
        "https://hooks.example:0/hook",
        "https://hooks.example:65536/hook",
        "https://\uff11\uff12\uff17.0.0.1/hook",
        "https://127\u30020\u30020\u30021/hook",
        "https://{host}/a\nb",
        "https://b\xfccher.example/",
    ],
)
async def test_a_wrong_url_is_refused_without_a_lookup(receiver: EventReceiver, url: str) -> None:
    with pytest.raises(DestinationRefused):
        await post(url.replace("{host}", receiver.url.split("/")[2]))
    assert receiver.requests == 0
