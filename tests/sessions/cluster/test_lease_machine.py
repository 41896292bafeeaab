"""Leases and their observation under pauses, clocks that jump, lost answers, and a store that lost commits.

Two nodes and a database are simulated with one true time. The machine looks for a moment at which both nodes may act for
the one session. Without a rule of the protocol it finds one; that is tested, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.selection import matrix

from statehold.sessions.cluster.lease import Lease, Observer

SECONDS = 10.0
NODES = ("n_a", "n_b")
RATES = {"n_a": 1.004, "n_b": 0.996}
"""Seconds of a node's clock in a true second."""


@dataclass
class Database:
    beats: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))
    ends: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NODES, 0.0))
    dead: set[str] = field(default_factory=set[str])
    owner: str | None = None
    epoch: int = 0

    def copy(self) -> Database:
        return replace(self, beats=dict(self.beats), ends=dict(self.ends), dead=set(self.dead))

    def renew(self, node: str, now: float) -> int | None:
        if node in self.dead:
            return None
        self.beats[node] += 1
        self.ends[node] = now + SECONDS
        return self.beats[node]

    def declare_dead(self, node: str, beat: int, now: float) -> None:
        if self.beats[node] == beat and self.ends[node] < now:
            self.dead.add(node)

    def claim(self, node: str) -> int | None:
        if node in self.dead or not (self.owner in (None, node) or self.owner in self.dead):
            return None
        self.owner = node
        self.epoch += 1
        return self.epoch


@dataclass
class Simulated:
    """One node: its lease, what it sees of the other one, and the epoch in which it holds the session."""

    lease: Lease
    observer: Observer
    epoch: int | None = None
    has_renewed: bool = True
    """Whether it has renewed its lease since the store lost commits, which ends all connections to it."""
    sent_at: float | None = None
    """When it sent a renewal whose answer has not arrived; the answer is in `answer`."""
    answer: tuple[int | None, dict[str, int], int | None] | None = None


class Machine(RuleBasedStateMachine):
    """The protocol. Subclasses leave out a rule of it."""

    observer: ClassVar[type[Observer]] = Observer
    compares: ClassVar[bool] = True
    """Whether a node compares its sessions with the store after a renewal that lost its connection or its beat."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.jumped = 0.0
        self.database = Database()
        self.copies: list[Database] = []
        self.nodes = {node: Simulated(Lease(SECONDS), self.observer(SECONDS / 4)) for node in NODES}
        for node in NODES:
            self.send(node)
            self.receive(node)
        self.claim("n_a")

    def clock(self, node: str) -> float:
        return self.now * RATES[node]

    def database_clock(self) -> float:
        return self.now + self.jumped

    def may_act(self, node: str) -> bool:
        simulated = self.nodes[node]
        return simulated.epoch is not None and simulated.lease.may_act(self.clock(node))

    def keep_copy(self) -> None:
        self.copies.append(self.database.copy())

    @rule(seconds=st.sampled_from([0.2, 2.4, 5.0, 11.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass; a node that does nothing meanwhile is stopped, or has no database."""
        self.now += seconds

    @rule(seconds=st.sampled_from([-60.0, 60.0]))
    def set_database_clock(self, seconds: float) -> None:
        self.jumped += seconds

    @rule(node=st.sampled_from(NODES))
    def send(self, node: str) -> None:
        """Have the database carry out a renewal; its answer arrives later, or never."""
        simulated = self.nodes[node]
        if simulated.lease.is_fenced:
            return
        self.keep_copy()
        simulated.sent_at = self.clock(node)
        beat = self.database.renew(node, self.database_clock())
        owned = self.database.epoch if self.database.owner == node else None
        simulated.answer = beat, dict(self.database.beats), owned

    @rule(node=st.sampled_from(NODES))
    def receive(self, node: str) -> None:
        simulated = self.nodes[node]
        if simulated.answer is None or simulated.sent_at is None or simulated.lease.is_fenced:
            return
        (beat, beats, owned), simulated.answer = simulated.answer, None
        if beat is None:
            simulated.lease.fence()
            return
        may_have_lost_commits = simulated.lease.has_lost(beat) or not simulated.has_renewed
        if self.compares and may_have_lost_commits and owned != simulated.epoch:
            simulated.epoch = None
        simulated.lease.renew(simulated.sent_at, beat)
        simulated.observer.note(beats, self.clock(node))
        simulated.has_renewed = True

    @rule(node=st.sampled_from(NODES))
    def heartbeat(self, node: str) -> None:
        self.send(node)
        self.receive(node)
        self.look(node)

    @rule(node=st.sampled_from(NODES))
    def look(self, node: str) -> None:
        """Declare the other node dead if it is silent; the database checks its own conditions again."""
        simulated = self.nodes[node]
        other = next(name for name in NODES if name != node)
        if simulated.lease.is_fenced or not simulated.observer.is_silent(
            other, SECONDS, self.clock(node)
        ):
            return
        self.keep_copy()
        self.database.declare_dead(other, self.database.beats[other], self.database_clock())

    @rule(node=st.sampled_from(NODES))
    def claim(self, node: str) -> None:
        simulated = self.nodes[node]
        if self.may_act(node) or not simulated.lease.may_act(self.clock(node)):
            return
        self.keep_copy()
        epoch = self.database.claim(node)
        if epoch is not None:
            simulated.epoch = epoch

    @rule(node=st.sampled_from(NODES))
    def release(self, node: str) -> None:
        simulated = self.nodes[node]
        if simulated.epoch is None or not self.may_act(node):
            return
        self.keep_copy()
        if (self.database.owner, self.database.epoch) == (node, simulated.epoch):
            self.database.owner = None
        simulated.epoch = None

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def lose_commits(self, data: st.DataObject) -> None:
        """Let the database go on from an older copy, as a standby that was behind does."""
        self.database = data.draw(st.sampled_from(self.copies[-6:])).copy()
        self.copies.clear()
        for simulated in self.nodes.values():
            simulated.has_renewed, simulated.answer = False, None

    @invariant()
    def at_most_one_acts(self) -> None:
        acting = [node for node in NODES if self.may_act(node) and self.nodes[node].has_renewed]
        assert len(acting) < 2, "two nodes may act"


class OneClock(Machine):
    """Trusts the clock of the database alone."""

    class observer(Observer):
        def is_silent(self, node: str, lease_seconds: float, now: float) -> bool:
            return True


class NoComparison(Machine):
    """Goes on with its sessions whatever the store has lost."""

    compares = False


def search(machine: type[Machine], *, examples: int) -> None:
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            phases=[Phase.generate],
            deadline=None,
            derandomize=True,
            database=None,
            print_blob=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


@pytest.mark.parametrize("examples", matrix(30, 300))
def test_two_nodes_never_act_for_one_session(examples: int) -> None:
    search(Machine, examples=examples)


# A search takes up to a minute.
@pytest.mark.control
@pytest.mark.parametrize("machine", [OneClock, NoComparison])
def test_without_a_rule_of_the_protocol_two_nodes_act(machine: type[Machine]) -> None:
    # Hypothesis also draws the constants of imported modules, so the examples depend on the tests that ran before.
    with pytest.raises(AssertionError, match="two nodes may act"):
        search(machine, examples=5000)
