"""The heartbeat of a node: it renews the lease of this node and watches the leases of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from ..errors import StoreUnavailable
from ..records import NodeRecord, NodeState
from .lease import Lease, Observer, Renewal, SeenNode

if TYPE_CHECKING:
    from ..store.leases import PostgresLeases

logger = logging.getLogger("statehold.sessions")

RETRY_SECONDS: Final = 0.2
"""Seconds between two attempts to renew a lease."""
SHORTEST_ATTEMPT: Final = 0.2
START_SECONDS: Final = 5.0
"""Seconds that the first renewal may take. It opens the connection, and no lease depends on it yet."""


class LeasedSessions(Protocol):
    """The sessions that a process holds under the lease of its node.

    The heartbeat calls these methods in the task of run(), which waits for none of their work.
    """

    def __len__(self) -> int: ...

    def epochs(self) -> Mapping[str, int]:
        """Return the epochs of the sessions, by id."""
        ...

    def record_beat(self) -> None:
        """Record that the lease was renewed."""
        ...

    def record_lapse(self) -> None:
        """Record that the lease is over and was not renewed. The node may act again after the next renewal."""
        ...

    def record_dead_node(self) -> None:
        """Record that this node has declared another one dead."""
        ...

    def compare(self, held: Mapping[str, int], stored: Mapping[str, int]) -> None:
        """Handle that the database may have lost commits.

        `held` are the epochs of the sessions that this process held, and `stored` those that the database had for this node
        a little later.
        """
        ...


class Heartbeat:
    """Renews the lease of one node from start() until the task of run() is cancelled or the node is fenced.

    `now` is the clock of this machine: it must not be set, and must run while the machine is suspended.
    """

    def __init__(
        self, node: str, lease_seconds: float, leases: PostgresLeases, now: Callable[[], float]
    ) -> None:
        self.node = node
        self.lease = Lease(lease_seconds)
        self.leases = leases
        self.fenced = anyio.Event()
        """Set when other nodes have declared this one dead."""
        self.others: dict[str, NodeRecord] = {}
        """The other nodes that are not dead, as they were last seen, the first to start first."""
        self.state = NodeState.UP
        """The state of this node; `statehold nodes drain` changes it in the store."""
        self._sessions: LeasedSessions | None = None
        self._observer = Observer(self.lease.interval)
        self._now = now
        self._database_offset = 0.0
        self._has_lapsed = False
        self._is_failing = False
        self._has_begun = False
        self._must_compare = False

    def attach(self, sessions: LeasedSessions) -> None:
        """Hold these sessions under the lease from now on. The lease begins before the node may hold any session."""
        self._sessions = sessions

    def count_sessions(self) -> int:
        """Return the number of sessions that this process holds."""
        return 0 if self._sessions is None else len(self._sessions)

    def may_act(self) -> bool:
        return self.lease.may_act(self._now())

    def database_now(self) -> float:
        return self._now() + self._database_offset

    async def start(self) -> None:
        """Renew the lease for the first time.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        await self._beat(max(self.lease.interval, START_SECONDS))

    async def run(self) -> None:
        """Renew the lease until cancelled or fenced."""
        wait = self.lease.interval
        while not self.fenced.is_set():
            await anyio.sleep(wait)
            sent_at = self._now()
            remaining = self.lease.ends_at - sent_at
            # An attempt ends with the lease, so that the lapse is noticed in time.
            within = min(self.lease.interval, remaining if remaining > 0 else self.lease.interval)
            try:
                await self._beat(max(within, SHORTEST_ATTEMPT))
            except StoreUnavailable as error:
                self._record_failure(error)
                wait = RETRY_SECONDS
            else:
                wait = max(0.0, sent_at + self.lease.interval - self._now())

    def _record_failure(self, error: StoreUnavailable) -> None:
        if not self._is_failing:
            logger.warning("the lease of this node was not renewed: %s", error)
        self._is_failing = True
        if not self._has_lapsed and not self.may_act():
            self._has_lapsed = True
            logger.error(
                "the lease of this node is over: its sessions wait until the database answers"
            )
            if self._sessions is not None:
                self._sessions.record_lapse()

    async def _beat(self, within: float) -> None:
        sent_at = self._now()
        renewal = await self.leases.renew(
            self.node,
            lease_seconds=self.lease.seconds,
            sessions=self.count_sessions(),
            within=within,
        )
        if renewal.beat is None:
            self.lease.fence()
            self.fenced.set()
            return
        await self._take(renewal, renewal.beat, sent_at, within)

    async def _take(self, renewal: Renewal, beat: int, sent_at: float, within: float) -> None:
        received_at = self._now()
        if self.lease.has_lost(beat) or (renewal.is_reconnected and self._has_begun):
            self._must_compare = True
        self._has_begun = True
        if self._must_compare:
            # Before the node may act again for a session that another one has claimed meanwhile.
            sessions = self._sessions
            if sessions is not None:
                held = sessions.epochs()
                stored = await self.leases.owned_epochs(self.node, within=within)
                sessions.compare(held, stored)
            self._must_compare = False
        self.lease.renew(sent_at, beat)
        self._database_offset = renewal.database_time - (sent_at + received_at) / 2
        if self._is_failing:
            logger.info("the lease of this node is renewed again")
        self._is_failing = self._has_lapsed = False
        self._see(renewal.nodes)
        self._observer.note({seen.record.id: seen.beat for seen in renewal.nodes}, received_at)
        await self._declare_dead(renewal.nodes, within)
        if self._sessions is not None:
            self._sessions.record_beat()

    def _see(self, nodes: Iterable[SeenNode]) -> None:
        self.others = {seen.record.id: seen.record for seen in nodes if seen.record.id != self.node}
        stored_state = next(
            (seen.record.state for seen in nodes if seen.record.id == self.node), self.state
        )
        if self.state is NodeState.UP:
            self.state = stored_state

    async def _declare_dead(self, nodes: Iterable[SeenNode], within: float) -> None:
        has_declared = False
        for seen in nodes:
            record, now = seen.record, self._now()
            if record.id == self.node or not seen.is_expired or not record.lease_seconds:
                continue
            if self._observer.is_silent(
                record.id, record.lease_seconds, now
            ) and await self.leases.declare_dead(record.id, seen.beat, within=within):
                logger.warning("node %s is dead: its lease is over (%s)", record.id, record.address)
                self.others.pop(record.id, None)
                has_declared = True
        if has_declared and self._sessions is not None:
            self._sessions.record_dead_node()

    async def drain(self) -> None:
        """Report that this node takes on no more sessions. A database that does not answer learns it later, from its end."""
        self.state = NodeState.DRAINING
        try:
            await self.leases.set_draining(self.node, within=self.lease.interval)
        except StoreUnavailable as error:
            logger.warning("the other nodes do not know that this one drains: %s", error)
