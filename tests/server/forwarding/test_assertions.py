"""Assertions of messages between two nodes of a cluster, with a clock of the test."""

from __future__ import annotations

from itertools import count, pairwise

import pytest

from statehold.server.forwarding.assertion import (
    CLOCK_ERROR_SECONDS,
    LIFETIME_SECONDS,
    AssertionRefused,
    Assertions,
)

OLD, NEW = b"o" * 32, b"n" * 32
MESSAGE = b'{"method":"tools/call"}\n'


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def node(name: str, clock: Clock, *keys: bytes) -> Assertions:
    numbers = count(1)
    return Assertions(name, keys or (OLD,), clock, lambda: f"{name}-{next(numbers)}")


def test_an_assertion_is_accepted_once(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    assertion = edge.sign("b", MESSAGE)
    assert owner.verify(assertion, MESSAGE) == "a"
    with pytest.raises(AssertionRefused, match="used before"):
        owner.verify(assertion, MESSAGE)


def test_a_replay_is_refused_until_it_is_expired_and_then_as_well(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    assertion = edge.sign("b", MESSAGE)
    owner.verify(assertion, MESSAGE)
    for _ in range(int(LIFETIME_SECONDS) + 2):
        clock.now += 1
        owner.verify(edge.sign("b", MESSAGE), MESSAGE)
        with pytest.raises(AssertionRefused):
            owner.verify(assertion, MESSAGE)


@pytest.mark.parametrize("field", ["from", "to", "id", "expires_at", "mac"])
def test_no_part_can_be_changed(clock: Clock, field: str) -> None:
    edge, owner = node("a", clock), node("b", clock)
    assertion = edge.sign("b", MESSAGE)
    changed = assertion[field] + 1 if field == "expires_at" else f"{assertion[field]}x"
    with pytest.raises(AssertionRefused, match="not signed"):
        owner.verify({**assertion, field: changed}, MESSAGE)
    with pytest.raises(AssertionRefused, match="malformed"):
        owner.verify({k: v for k, v in assertion.items() if k != field}, MESSAGE)
    owner.verify(assertion, MESSAGE)


def test_another_message_is_refused(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    with pytest.raises(AssertionRefused, match="not signed"):
        owner.verify(edge.sign("b", MESSAGE), MESSAGE.replace(b"call", b"list"))


def test_an_assertion_for_another_node_is_refused(clock: Clock) -> None:
    with pytest.raises(AssertionRefused, match="another node"):
        node("b", clock).verify(node("a", clock).sign("c", MESSAGE), MESSAGE)


def test_an_assertion_expires(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    assertion = edge.sign("b", MESSAGE)
    clock.now += LIFETIME_SECONDS
    with pytest.raises(AssertionRefused, match="expired"):
        owner.verify(assertion, MESSAGE)


def test_clocks_may_differ_a_little(clock: Clock) -> None:
    ahead, owner = Clock(), node("b", clock)
    ahead.now = clock.now + CLOCK_ERROR_SECONDS
    owner.verify(node("a", ahead).sign("b", MESSAGE), MESSAGE)
    ahead.now += 1
    with pytest.raises(AssertionRefused, match="not valid yet"):
        owner.verify(node("c", ahead).sign("b", MESSAGE), MESSAGE)
    ahead.now = float("nan")
    with pytest.raises(AssertionRefused, match="expired"):
        owner.verify(node("d", ahead).sign("b", MESSAGE), MESSAGE)


def test_a_key_is_replaced_node_by_node(clock: Clock) -> None:
    stages = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    for before, after in pairwise(stages):
        one, two = node("a", clock, *before), node("b", clock, *after)
        two.verify(one.sign("b", MESSAGE), MESSAGE)
        one.verify(two.sign("a", MESSAGE), MESSAGE)
    with pytest.raises(AssertionRefused, match="not signed"):
        node("b", clock, NEW).verify(node("a", clock, OLD).sign("b", MESSAGE), MESSAGE)


def test_a_receiver_proves_that_it_has_a_key(clock: Clock) -> None:
    edge, owner, stranger = node("a", clock), node("b", clock), node("b", clock, NEW)
    assertion = edge.sign("b", MESSAGE)
    edge.check_proof(assertion, owner.prove(assertion))
    for proof in (stranger.prove(assertion), node("c", clock).prove(assertion), "", "é"):
        with pytest.raises(AssertionRefused):
            edge.check_proof(assertion, proof)


def test_the_mac_of_an_assertion_is_no_proof(clock: Clock) -> None:
    edge = node("a", clock)
    assertion = edge.sign("b", MESSAGE)
    with pytest.raises(AssertionRefused):
        edge.check_proof(assertion, assertion["mac"])
