"""The node that takes on a session without an owner."""

from __future__ import annotations

from statehold.sessions.cluster.placement import choose_node, excess
from statehold.sessions.records import NodeRecord


def node(name: str, sessions: int, capacity: int = 100) -> NodeRecord:
    return NodeRecord(id=name, proof_key="", started_at=0.0, sessions=sessions, capacity=capacity)


def chosen(sessions: int, capacity: int, *others: NodeRecord, is_draining: bool = False) -> str:
    choice = choose_node(sessions, capacity, others, is_draining=is_draining)
    return "this one" if choice is None else choice.id


def test_a_node_serves_what_it_is_asked_for_unless_it_is_crowded_or_full() -> None:
    assert chosen(0, 100) == "this one"
    assert chosen(12, 100, node("b", 10), node("c", 8)) == "this one"
    assert chosen(20, 100, node("b", 10), node("c", 8)) == "c"
    assert chosen(5, 5, node("b", 5)) == "b"


def test_a_full_node_keeps_what_no_other_one_has_more_room_for() -> None:
    assert chosen(5, 5, node("b", 9, capacity=5)) == "this one"
    assert chosen(9, 5, node("b", 6, capacity=5)) == "b"


def test_few_sessions_are_not_spread() -> None:
    assert chosen(2, 100, node("b", 0)) == "this one"
    assert excess(3, [node("b", 0)]) == 0
    assert excess(8, [node("b", 0)]) == 1
    assert excess(100, [node("b", 0), node("edge", 0, capacity=0)]) == 36


def test_a_node_that_drains_or_has_no_capacity_takes_on_nothing() -> None:
    assert chosen(0, 100, node("b", 99), is_draining=True) == "b"
    assert chosen(0, 0, node("b", 200), node("c", 300)) == "b"
    assert chosen(0, 0, node("edge", 0, capacity=0)) == "this one"
