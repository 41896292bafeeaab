"""Assertions of requests between two nodes of a cluster, with a clock of the test."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import pytest

from statehold.server.cluster.assertion import (
    BEGIN_SECONDS,
    CLOCK_ERROR_SECONDS,
    HEADER,
    Assertion,
    AssertionRefused,
    Headers,
    NodeRequest,
    SignedAssertions,
)
from statehold.sessions.records import Principal

OLD, NEW = b"o" * 32, b"n" * 32
REQUEST = NodeRequest("POST", "/mcp?a=b", [(b"accept", b"text/plain")], b"body")
CLAIM = Assertion(Principal(issuer="i", subject="alice"), "team", "sh_a", 3, adopt=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def node(name: str, clock: Clock, *keys: bytes) -> SignedAssertions:
    numbers = count(1)
    return SignedAssertions(name, keys or (OLD,), clock, lambda: f"{name}-{next(numbers)}")


def scope(header: bytes, request: NodeRequest = REQUEST) -> dict[str, Any]:
    """The ASGI scope of a request that arrives."""
    path, _, query = request.target.partition("?")
    added: Headers = [(b"host", b"node"), (b"expect", b"100-continue"), (HEADER, header)]
    return {
        "method": request.method,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [*added, *request.headers],
    }


def sign(edge: SignedAssertions, receiver: str = "b") -> bytes:
    return edge.sign(receiver, REQUEST, CLAIM)


def test_an_assertion_is_accepted_once(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    header = sign(edge)
    assertion, fields = owner.verify(scope(header))
    assert assertion == CLAIM
    owner.check_body(fields, REQUEST.body)
    with pytest.raises(AssertionRefused, match="used before"):
        owner.verify(scope(header))


def test_a_replay_is_refused_until_it_is_expired_and_then_as_well(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    header = sign(edge)
    owner.verify(scope(header))
    for _ in range(int(BEGIN_SECONDS) + 2):
        clock.now += 1
        owner.verify(scope(sign(edge)))
        with pytest.raises(AssertionRefused):
            owner.verify(scope(header))


@pytest.mark.parametrize(
    "changed",
    [
        replace(REQUEST, method="PUT"),
        replace(REQUEST, target="/mcp?a=c"),
        replace(REQUEST, target="/mcp"),
        replace(REQUEST, headers=[]),
        replace(REQUEST, headers=[(b"accept", b"text/html")]),
        replace(REQUEST, headers=[*REQUEST.headers, (b"mcp-session-id", b"1")]),
    ],
)
def test_another_request_is_refused(clock: Clock, changed: NodeRequest) -> None:
    edge, owner = node("a", clock), node("b", clock)
    header = sign(edge)
    with pytest.raises(AssertionRefused, match="not signed"):
        owner.verify(scope(header, changed))
    owner.verify(scope(header))


@pytest.mark.parametrize(
    "part", [b'"alice"', b'"team"', b'"sh_a"', b'"epoch":3', b'"a-1"', b"true"]
)
def test_no_part_can_be_changed(clock: Clock, part: bytes) -> None:
    edge, owner = node("a", clock), node("b", clock)
    header = sign(edge)
    assert part in header
    for changed in (header.replace(part, part + b" "), header.replace(part, b"4"), header[:-1]):
        with pytest.raises(AssertionRefused, match="not signed"):
            owner.verify(scope(changed))
    owner.verify(scope(header))


def test_another_body_is_refused(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    _, fields = owner.verify(scope(sign(edge)))
    with pytest.raises(AssertionRefused, match="another body"):
        owner.check_body(fields, b"Body")


def test_a_request_without_an_assertion_or_with_two_is_refused(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    none, two = scope(sign(edge)), scope(sign(edge))
    none["headers"] = list(REQUEST.headers)
    two["headers"].append((HEADER, sign(edge)))
    for refused in (none, two):
        with pytest.raises(AssertionRefused, match="missing"):
            owner.verify(refused)


def test_an_assertion_for_another_node_is_refused(clock: Clock) -> None:
    with pytest.raises(AssertionRefused, match="another node"):
        node("b", clock).verify(scope(sign(node("a", clock), "c")))


def test_an_assertion_expires(clock: Clock) -> None:
    edge, owner = node("a", clock), node("b", clock)
    header = sign(edge)
    clock.now += BEGIN_SECONDS
    with pytest.raises(AssertionRefused, match="expired"):
        owner.verify(scope(header))


def test_clocks_may_differ_a_little(clock: Clock) -> None:
    ahead, owner = Clock(), node("b", clock)
    ahead.now = clock.now + CLOCK_ERROR_SECONDS
    owner.verify(scope(sign(node("a", ahead))))
    ahead.now += 1
    with pytest.raises(AssertionRefused, match="not valid yet"):
        owner.verify(scope(sign(node("c", ahead))))
    ahead.now = float("nan")
    with pytest.raises(AssertionRefused, match="expired"):
        owner.verify(scope(sign(node("d", ahead))))


def test_a_key_is_replaced_node_by_node(clock: Clock) -> None:
    stages = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    for before, after in pairwise(stages):
        one, two = node("a", clock, *before), node("b", clock, *after)
        two.verify(scope(sign(one)))
        one.verify(scope(sign(two, "a")))
    with pytest.raises(AssertionRefused, match="not signed"):
        node("b", clock, NEW).verify(scope(sign(node("a", clock, OLD))))


def test_a_receiver_proves_that_it_has_a_key(clock: Clock) -> None:
    edge, owner, stranger = node("a", clock), node("b", clock), node("b", clock, NEW)
    header = sign(edge)
    _, fields = owner.verify(scope(header))
    edge.check_proof(header, owner.prove(fields).encode())
    others = (stranger.prove(fields), node("c", clock).prove(fields), "", "é")
    for proof in others:
        with pytest.raises(AssertionRefused):
            edge.check_proof(header, proof.encode())


def test_the_mac_of_an_assertion_is_no_proof(clock: Clock) -> None:
    edge = node("a", clock)
    header = sign(edge)
    with pytest.raises(AssertionRefused):
        edge.check_proof(header, header.rpartition(b" ")[2])
