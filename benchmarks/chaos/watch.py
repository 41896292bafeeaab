"""A look at the database every moment: no number of a session may fall, however late a write of an older owner comes."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import anyio
from sqlalchemy.exc import DBAPIError

from .cluster import Cluster

SECONDS: Final = 0.5
NUMBERS: Final = (
    "SELECT 'epoch of ' || id AS what, epoch AS number FROM session "
    "UNION ALL SELECT 'state of ' || session_id, version FROM state"
)
JOURNAL: Final = "SELECT session_id, seq, epoch FROM journal"


class Watch:
    """The highest number of each session so far. A failover begins a new history."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._highest: dict[str, int] = {}
        self._failovers = 0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await anyio.sleep(SECONDS)
            with suppress(DBAPIError):
                await self.look()

    async def look(self) -> None:
        """Report numbers that fell. Raises DBAPIError while the database is away."""
        database = self._cluster.database
        began = database.failovers
        rows = await database.query(NUMBERS)
        if began != database.failovers:
            return
        if began != self._failovers:
            self._failovers = began
            self._highest.clear()
        for row in rows:
            what, number = row["what"], row["number"]
            if number < self._highest.get(what, 0):
                text = f"{what} fell from {self._highest[what]} to {number}"
                self._cluster.findings.add("stale writes", text)
            self._highest[what] = number


class JournalImage:
    """The owners of all journal entries at one moment; compare() reports those that another owner has replaced since."""

    def __init__(self, cluster: Cluster, epochs: dict[tuple[str, int], int]) -> None:
        self._cluster = cluster
        self._epochs = epochs

    @classmethod
    async def take(cls, cluster: Cluster) -> JournalImage:
        return cls(cluster, await _epochs(cluster))

    async def compare(self) -> None:
        for (session, seq), epoch in (await _epochs(self._cluster)).items():
            before = self._epochs.get((session, seq), epoch)
            if epoch != before:
                text = f"{session}: entry {seq} of epoch {before} was replaced by one of {epoch}"
                self._cluster.findings.add("stale writes", text)


async def _epochs(cluster: Cluster) -> dict[tuple[str, int], int]:
    rows = await cluster.database.query(JOURNAL)
    return {(row["session_id"], row["seq"]): row["epoch"] for row in rows}
