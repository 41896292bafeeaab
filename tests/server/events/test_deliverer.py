"""The deliverer tries a failed delivery again and again, later each time, and stops when it must."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest
from support.engine import Engine, engine
from support.event_receiver import SECRET, EventReceiver, event_receiver
from support.selection import matrix
from support.waiting import until

from statehold.server.events.deliverer import (
    FAILING_HOSTS,
    FIRST_DELAY,
    LEASE_SECONDS,
    LOOK_SECONDS,
    MAX_ATTEMPTS,
    OVERLOAD_SECONDS,
    PAUSE_SECONDS,
    Deliverer,
)
from statehold.server.events.webhooks import Webhooks, is_secret
from statehold.sessions.clock import ManualClock
from statehold.sessions.records import LOCAL
from statehold.sessions.store.events.records import Subscription
from statehold.tools import outbound
from statehold.tools.browser.egress.resolver import Resolver
from statehold.tools.outbound import OutboundClient


@pytest.fixture
def receiver() -> Generator[EventReceiver]:
    with event_receiver() as running:
        yield running


def start(engine: Engine) -> None:
    client = OutboundClient(Resolver(engine.clock), allow_loopback=True)
    webhooks = Webhooks(client, engine.clock)
    deliverer = Deliverer(engine.registry, webhooks, jitter=lambda low, high: (low + high) / 2)
    engine.registry.spawn(deliverer.run)


def host_of(receiver: EventReceiver) -> str:
    return receiver.url.split("/")[2]


async def subscribe(
    engine: Engine, receiver: EventReceiver, id: str = "sub_1", *, name: str = "127.0.0.1"
) -> None:
    """Subscribe with a name of the receiver's host."""
    now = engine.clock.now()
    subscription = Subscription(
        id=id,
        owner=LOCAL.key,
        session_id="",
        name="session_paused",
        url=receiver.url.replace("127.0.0.1", name),
        host=host_of(receiver).replace("127.0.0.1", name),
        secret=SECRET,
        created_at=now,
        expires_at=now + 1e6,
    )
    assert await engine.store.put_subscription(subscription, most=100)


async def pause(engine: Engine) -> None:
    session = await engine.create()
    await engine.registry.pause(LOCAL, session.id)


async def due_at(engine: Engine) -> float | None:
    [due] = (await engine.store.due_hosts()).values()
    return due


async def test_a_failed_delivery_is_tried_ten_times_and_again_after_a_refresh(
    receiver: EventReceiver,
) -> None:
    async with engine() as node:
        start(node)
        receiver.status = 503
        await subscribe(node, receiver)
        await pause(node)
        delays: list[float] = []
        for attempt in range(1, MAX_ATTEMPTS):
            now = node.clock.now()

            async def is_put_off(attempt: int = attempt, now: float = now) -> bool:
                due = await due_at(node)
                # While it is sent, it is due at the end of its lease.
                return receiver.requests == attempt and due is not None and due - now != 15.0

            await until(is_put_off)
            delays.append((await due_at(node) or 0.0) - now)
            node.clock.advance(delays[-1])

        async def is_given_up() -> bool:
            return await due_at(node) is None

        await until(is_given_up)
        assert delays == pytest.approx([0.5, 2.0, 8.0, 32.0, 128.0, 512.0, 2048.0, 3600.0, 3600.0])
        node.clock.advance(100_000.0)
        assert receiver.requests == MAX_ATTEMPTS
        await subscribe(node, receiver)

        async def has_next_round() -> bool:
            return await due_at(node) == node.clock.now() + FIRST_DELAY

        await until(has_next_round)
        receiver.status = 204
        node.clock.advance(FIRST_DELAY)

        def is_delivered() -> bool:
            # The deliverer may have read the time of its pause after the advance.
            node.clock.advance(PAUSE_SECONDS)
            return receiver.delivered != []

        await until(is_delivered)
        assert receiver.delivered[0].is_signed(SECRET)


async def test_an_overload_of_this_process_uses_up_no_attempt(
    receiver: EventReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound, "MAX_REQUESTS", 1)
    monkeypatch.setattr(outbound, "MAX_WAITING", 0)
    async with engine() as node:
        with event_receiver() as silent:
            silent.released.clear()
            await subscribe(node, silent)
            await pause(node)
            start(node)
            await until(lambda: silent.requests)
            await subscribe(node, receiver, id="sub_2")
            await pause(node)
            for _ in range(MAX_ATTEMPTS + 1):
                now = node.clock.now()

                async def next_due(now: float = now) -> float | None:
                    due = (await node.store.due_hosts())[host_of(receiver)]
                    return due if due is not None and now < due != now + LEASE_SECONDS else None

                due = await until(next_due)
                assert due is not None
                node.clock.advance(max(due - now, OVERLOAD_SECONDS))
            assert receiver.requests == 0
        node.clock.advance(LEASE_SECONDS)
        await until(lambda: receiver.delivered)


async def test_hosts_that_fail_take_turns(receiver: EventReceiver) -> None:
    """So that many of them take neither all requests nor all time."""
    async with engine() as node:
        receiver.status = 503
        hosts = FAILING_HOSTS + 8
        for number in range(hosts):
            await subscribe(node, receiver, f"sub_{number}", name=f"a{number}.localhost")
        start(node)
        await pause(node)

        async def put_off(delay: float) -> int:
            """Return for how many hosts an event waits so long."""
            due = (await node.store.due_hosts()).values()
            return sum(at is not None and at - node.clock.now() == delay for at in due)

        async def all_are_put_off() -> bool:
            return await put_off(0.5) == hosts

        async def places_are_taken() -> bool:
            return await put_off(2.0) == FAILING_HOSTS

        await until(all_are_put_off)
        node.clock.advance(0.5)
        await until(places_are_taken)
        assert receiver.requests == hosts + FAILING_HOSTS
        node.clock.advance(PAUSE_SECONDS)
        await until(lambda: receiver.requests == 2 * hosts)


@pytest.mark.parametrize("status", matrix(410, 413))
async def test_an_event_that_its_receiver_does_not_want_is_not_sent_again(
    receiver: EventReceiver, status: int
) -> None:
    async with engine() as node:
        start(node)
        receiver.status = status
        await subscribe(node, receiver)
        await pause(node)

        async def is_gone() -> bool:
            return receiver.requests == 1 and await due_at(node) is None

        await until(is_gone)


async def test_a_host_that_answers_gets_all_at_once(receiver: EventReceiver) -> None:
    """The clock stands, so that nothing here waits for a time."""
    async with engine() as node:
        await subscribe(node, receiver)
        for _ in range(20):
            await pause(node)
        start(node)
        await until(lambda: len({*receiver.ids()}) == 20)
        assert len(receiver.ids()) == 20
        # Receivers compare it with their own time.
        sent_at = {int(each.headers["webhook-timestamp"]) for each in receiver.delivered}
        assert all(abs(time.time() - at) < 120 for at in sent_at)


async def test_refused_events_do_not_slow_their_host_down(receiver: EventReceiver) -> None:
    """The clock stands here too."""
    async with engine() as node:
        receiver.status = 404
        await subscribe(node, receiver)
        for _ in range(5):
            await pause(node)
        start(node)
        await until(lambda: receiver.requests == 5)


async def test_events_of_another_process_are_found(receiver: EventReceiver, tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        engine(folder=tmp_path, clock=clock) as sender,
        engine(folder=tmp_path, clock=clock) as other,
    ):
        waiting = clock.waiting
        start(sender)
        await until(lambda: clock.waiting > waiting)
        await subscribe(other, receiver)
        await pause(other)
        clock.advance(LOOK_SECONDS)
        await until(lambda: receiver.delivered)


async def test_an_expired_subscription_is_deleted(receiver: EventReceiver) -> None:
    async with engine() as node:
        await subscribe(node, receiver)
        node.clock.advance(2e6)

        async def is_gone() -> bool:
            return await node.store.due_hosts() == {}

        await until(is_gone)


@pytest.mark.parametrize("url", ["https://A.example.:443/x", "https://a.EXAMPLE/y"])
def test_spellings_of_a_host_are_one(url: str) -> None:
    clock = ManualClock()
    client = OutboundClient(Resolver(clock), allow_loopback=False)
    assert Webhooks(client, clock).host_of(url) == "a.example:443"


@pytest.mark.parametrize(
    ("secret", "is_good"),
    [
        (SECRET, True),
        ("whsec_" + "A" * 32, True),
        ("whsec_" + "A" * 86, True),
        ("whsec_" + "A" * 31, False),
        ("whsec_" + "A" * 88, False),
        ("A" * 32, False),
        ("whsec_" + "-" * 32, False),
        ("whsec_" + "ä" * 32, False),
        (None, False),
    ],
)
def test_a_secret_has_24_to_64_bytes(secret: object, is_good: bool) -> None:
    assert is_secret(secret) is is_good
