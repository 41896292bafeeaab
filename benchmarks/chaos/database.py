"""PostgreSQL with a standby that follows it, for restarts, failovers that lose commits, and jumps of its clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import text

from ..servers import PostgreSQL, program_path
from ..soak.findings import Findings
from .relay import Relays

T = TypeVar("T")
FOLLOW_SECONDS: Final = 15.0
REPLICATION: Final = "replication"
"""The link from a standby to its primary."""
LATE_SECONDS: Final = 1.0
"""Seconds between a commit and the time at which its caller saw the acknowledgement."""

CLOCK: Final = """\
CREATE SCHEMA chaos;
CREATE TABLE chaos.clock (seconds_ahead float8);
INSERT INTO chaos.clock VALUES (0);
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.clock_timestamp() + seconds_ahead * interval '1 second' FROM chaos.clock $$;
ALTER DATABASE {database} SET search_path = public, pg_catalog"""
"""A clock that can be set: the function stands before that of the server in the search path."""


class _Server(PostgreSQL):
    """A server. With `primary`, a port, it begins as a copy of the server there and follows it."""

    def __init__(self, primary: int | None = None) -> None:
        super().__init__()
        self._primary = primary

    def _making(self) -> list[str]:
        if self._primary is None:
            return super()._making()
        source = f"host=127.0.0.1 port={self._primary} user=statehold"
        quickly = ("--checkpoint=fast", "--no-sync", "--write-recovery-conf")
        return [program_path("pg_basebackup"), "-d", source, "-D", f"{self.folder}/data", *quickly]

    @property
    def socket(self) -> str:
        return f"{self.folder}/.s.PGSQL.5432"

    def query(self, statement: str, database: str = "postgres") -> list[dict[str, Any]]:
        with self.connection(self.url(database)) as connection:
            result = connection.execute(text(statement))
            return [dict(row) for row in result.mappings()] if result.returns_rows else []


class Database:
    """The database of a run. Nodes reach it over one link each, which leads to the primary of the moment."""

    def __init__(self, relays: Relays) -> None:
        self.failovers = 0
        self._relays = relays
        self._primary = _Server()
        self._standby: _Server | None = None
        self._links: list[str] = []
        # The kernel ends a server when the thread that started it ends, so this one lives as long as the run.
        self._thread = ThreadPoolExecutor(1)
        self._name = ""

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def start(self, *, follow: bool) -> None:
        """Start the primary and, with `follow`, a standby."""
        url = await self._in_thread(self._primary.fresh)
        self._name = url.partition("?")[0].rpartition("/")[2]
        for statement in CLOCK.split(";"):
            await self.query(statement.format(database=self._name))
        if follow:
            await self._follow()

    async def link(self, name: str) -> str:
        """Return the URL of the database over a new link of this name."""
        port = await self._relays.lead(name, self._primary.socket)
        self._links.append(name)
        return f"postgresql://statehold@127.0.0.1:{port}/{self._name}"

    async def _follow(self) -> None:
        port = await self._relays.lead(REPLICATION, self._primary.socket)
        await self._relays.set_flow(REPLICATION, "open")
        self._standby = _Server(port)
        await self._in_thread(self._standby.start)

    def query_now(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a query on the primary; blocks. Raises sqlalchemy.exc.OperationalError while it is away."""
        return self._primary.query(statement, self._name)

    async def query(self, statement: str) -> list[dict[str, Any]]:
        return await anyio.to_thread.run_sync(self.query_now, statement)

    async def set_clock(self, offset: float) -> None:
        """Put the clock, as the statements of the nodes read it, some seconds ahead or back."""
        await self.query(f"UPDATE chaos.clock SET seconds_ahead = {offset:g}")

    async def restart(self, away_seconds: float) -> None:
        """End the primary as a power cut would, and start it again after a while."""
        await self._in_thread(self._primary.kill)
        await anyio.sleep(away_seconds)
        await self._in_thread(self._primary.start)

    async def fail_over(
        self, lost_seconds: float, findings: Findings, promoted: Callable[[], Awaitable[None]]
    ) -> None:
        """Replace the primary by its standby, which lacks the commits of the last seconds. They are in `lost_commits`.

        `promoted` is called when the new primary answers, before the nodes reach it.
        """
        assert self._standby is not None
        old, new = self._primary, self._standby
        began = time.time()
        await self._wait_for_standby()
        await self._relays.set_flow(REPLICATION, "refused")
        await anyio.sleep(lost_seconds)
        await self._in_thread(old.kill)
        findings.lost_commits.append((began, time.time() + LATE_SECONDS))
        await anyio.to_thread.run_sync(new.query, "SELECT pg_promote(true, 10)")
        self._primary, self._standby = new, None
        self.failovers += 1
        await promoted()
        for link in self._links:
            await self._relays.lead(link, new.socket)
        await self._in_thread(old.stop)
        await self._follow()

    async def _wait_for_standby(self) -> None:
        """Wait until the standby has everything that the primary has now."""
        assert self._standby is not None
        [row] = await self.query("SELECT pg_current_wal_flush_lsn()::text AS lsn")
        ask = f"SELECT pg_last_wal_receive_lsn() >= '{row['lsn']}' AS has"
        with anyio.fail_after(FOLLOW_SECONDS):
            while True:
                [row] = await anyio.to_thread.run_sync(self._standby.query, ask)
                if row["has"]:
                    return
                await anyio.sleep(0.05)

    def stop(self) -> None:
        """End both servers and remove their files. Idempotent."""
        for server in (self._standby, self._primary):
            if server is not None:
                server.stop()
        self._thread.shutdown()
