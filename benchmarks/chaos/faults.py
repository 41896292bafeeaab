"""The faults of a run: nodes that die, stop and leave, a database that goes away or loses commits, and a broken network."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final

import anyio

from ..soak.faults import Fault, kill_part
from ..soak.programs import fill_disk
from .cluster import Cluster, ClusterNode
from .relay import Flow
from .watch import JournalImage

SKEW_SECONDS: Final = 90.0
LOST_SECONDS: Final = (0.2, 1.5)
AWAY_SECONDS: Final = (0.1, 1.0)
SETTLE_SECONDS: Final = 1.5
LAST_ENTRIES: Final = "SELECT session_id, max(seq) AS seq FROM journal GROUP BY session_id"
SHORT: Final = 0.5
LONG: Final = 2.0
"""Lengths of a fault in leases: the others do not notice, and they take the sessions over."""


class ClusterFaults:
    """The faults of a cluster by their names. Each ends what it began, also when it is cancelled."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        cut: tuple[Flow, ...] = ("stalled", "refused", "stalled up", "stalled down")
        self.all: dict[str, Fault] = {
            "kill": self._kill,
            "kill, and another clock": self._kill_with_other_clock,
            "kill, and a long absence": self._kill_for_long,
            "graceful stop": self._stop_gracefully,
            "short freeze": partial(self.freeze, SHORT),
            "long freeze": partial(self.freeze, LONG),
            "database restart": self._restart_database,
            "failover with lost commits": self._fail_over,
            "short database cut": partial(self.cut_database, SHORT, cut[:2]),
            "long database cut": partial(self.cut_database, LONG, cut[:2]),
            "one-way database cut": partial(self.cut_database, LONG, cut[2:]),
            "cut between nodes": partial(self._cut_peers, cut[:2]),
            "one-way cut between nodes": partial(self._cut_peers, cut[2:]),
            "database clock ahead": partial(self.set_database_clock, SKEW_SECONDS),
            "database clock back": partial(self.set_database_clock, -SKEW_SECONDS),
            **{part: partial(kill_part, part, random) for part in ("stdio upstream", "browser")},
            "HTTP upstream": self._kill_upstream,
        }
        if cluster.disks:
            self.all["full disk"] = self._exhaust_disk

    def _node(self) -> ClusterNode:
        return self._random.choice(self._cluster.nodes)

    async def _kill(self) -> bool:
        await self._cluster.end(self._node(), signal.SIGKILL, -signal.SIGKILL)
        return True

    async def _kill_with_other_clock(self) -> bool:
        node = self._node()
        node.clock = self._random.choice((-SKEW_SECONDS, 0.0, SKEW_SECONDS))
        await self._cluster.end(node, signal.SIGKILL, -signal.SIGKILL)
        return True

    async def _kill_for_long(self) -> bool:
        """Kill a node that comes back only after its lease: until then its machine cannot show that it died."""
        node = self._node()
        node.may_start = anyio.Event()
        try:
            node.expected.add(-signal.SIGKILL)
            self._cluster.signal(node, signal.SIGKILL)
            await anyio.sleep(LONG * self._cluster.lease_seconds)
        finally:
            node.may_start.set()
        await self._cluster.wait_until_serving(node)
        node.expected.discard(-signal.SIGKILL)
        return True

    async def _stop_gracefully(self) -> bool:
        await self._cluster.end(self._node(), signal.SIGTERM, 0)
        return True

    async def freeze(self, leases: float) -> bool:
        """Stop a process for some leases and let it go on, as a suspended machine does."""
        node = self._node()
        self._cluster.signal(node, signal.SIGSTOP)
        try:
            await anyio.sleep(leases * self._cluster.lease_seconds)
            image = await JournalImage.take(self._cluster)
        finally:
            self._cluster.signal(node, signal.SIGCONT)
        await anyio.sleep(SETTLE_SECONDS)
        await image.compare()
        await self._cluster.wait_until_serving(node)
        return True

    async def _restart_database(self) -> bool:
        async with self._cluster.without_database(*self._cluster.nodes):
            await self._cluster.database.restart(self._random.uniform(*AWAY_SECONDS))
        return True

    async def _fail_over(self) -> bool:
        async with self._cluster.without_database(*self._cluster.nodes):
            lost = self._random.uniform(*LOST_SECONDS)
            await self._cluster.database.fail_over(
                lost, self._cluster.findings, self._note_last_entries
            )
        return True

    async def _note_last_entries(self) -> None:
        """Note where the journals end that the new primary has: after a gap there, their owners go on."""
        rows = await self._cluster.database.query(LAST_ENTRIES)
        ends = {(row["session_id"], row["seq"]) for row in rows}
        self._cluster.findings.lost_entries_after |= ends

    async def cut_database(self, leases: float, flows: Sequence[Flow]) -> bool:
        """Cut one node off from the database for some leases."""
        node = self._node()
        async with self._cluster.without_database(node):
            await self._cut(node.database_link, self._random.choice(flows), leases)
        return True

    async def _cut_peers(self, flows: Sequence[Flow]) -> bool:
        """Cut the way on which the others reach one node. Its own way to them stays."""
        await self._cut(self._node().peer_link, self._random.choice(flows), LONG)
        return True

    async def _cut(self, link: str, flow: Flow, leases: float) -> None:
        await self._cluster.set_flow(link, flow)
        try:
            await anyio.sleep(leases * self._cluster.lease_seconds)
        finally:
            await self._cluster.set_flow(link, "open")
        await anyio.sleep(SETTLE_SECONDS)

    async def set_database_clock(self, offset: float) -> bool:
        """Put the clock of the database ahead or back while only clients reach a node, for less than its lease."""
        node = self._node()
        await self._cluster.database.set_clock(offset)
        await self._cluster.set_flow(node.peer_link, "refused")
        try:
            async with self._cluster.without_database(node):
                await self._cut(node.database_link, "stalled", SHORT)
        finally:
            await self._cluster.set_flow(node.peer_link, "open")
        await self._cluster.database.set_clock(0)
        await anyio.sleep(SETTLE_SECONDS)
        return True

    async def _kill_upstream(self) -> bool:
        await self._cluster.upstream.kill()
        await self._cluster.upstream.start()
        return True

    async def _exhaust_disk(self) -> bool:
        await fill_disk(self._random.choice(self._cluster.disks))
        return True
