"""Names to addresses."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import anyio
import pytest
from support.proxy_ends import LOCAL, Names, connect, hello, site

from statehold.sessions.clock import ManualClock
from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.egress.resolver import NotFound, Resolver
from statehold.tools.browser.egress.socks import SocksReply


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


async def test_an_answer_that_is_no_address_is_none() -> None:
    names = Names(bad=[["192.0.2.1", "not an address"], ["192.0.2.2"]])
    resolver = Resolver(ManualClock(), lookup=names)
    with pytest.raises(NotFound):
        await resolver.addresses("bad.example")
    assert [str(a) for a in await resolver.addresses("bad.example")] == ["192.0.2.2"]


async def test_names_without_an_answer_keep_only_their_owner_from_asking() -> None:
    answer = threading.Event()

    def lookup(name: str) -> Sequence[str]:
        if name != "site.example":
            answer.wait(10)
            return []
        return ["127.0.0.1"]

    replies: list[SocksReply] = []
    resolver = Resolver(ManualClock(), lookup=lookup, at_once=4)
    async with (
        site(hello(b"here")[0]) as port,
        FilteringProxy(resolver=resolver) as proxy,
        anyio.create_task_group() as tasks,
    ):
        many = [await proxy.admit(LOCAL, owner="alice") for _ in range(2)]
        late = await proxy.admit(LOCAL, owner="ben")

        async def ask(number: int) -> None:
            # The other owner asks for one of these names too.
            host = "site.example" if number == 7 else f"slow{number}.example"
            replies.append(await connect(many[number % 2], f"{host}:{port}"))

        for number in range(8):
            tasks.start_soon(ask, number)
        await anyio.wait_all_tasks_blocked()
        try:
            assert await connect(late, f"site.example:{port}") is SocksReply.SUCCEEDED
            assert not replies
        finally:
            answer.set()
    assert sorted(replies) == [SocksReply.SUCCEEDED] + [SocksReply.HOST_UNREACHABLE] * 7
