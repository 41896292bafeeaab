"""nodes: the statements of one node at rest and per call, and PostgreSQL under those of many nodes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import anyio
import psutil
import psycopg

from statehold.sessions.principals.policy_watch import IDLE_SECONDS, LOOK_SECONDS
from statehold.sessions.records import StateRecord
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.transitions.expiry import SWEEP_SECONDS

from ..asking import Asking
from ..forwarding import CLUSTER, KEY
from ..gateways import http_server, statehold, statehold_config
from ..plan import QUICK, Plan
from ..processes import cpu_seconds, free_port
from ..report import Row, Table
from ..store import entry_of, session_of
from .filling import LargePostgreSQL
from .requests import Opened, join, sweep

CALLS_PER_SECOND: Final = 34
"""Calls of a node at the peak of docs/operate/scale.md, with 100 live sessions."""
LEASE_SECONDS: Final = 10.0


async def measure(plan: Plan) -> Table:
    table = Table(
        "nodes: statements per second of nodes in a cluster, and the processor of PostgreSQL"
    )
    if not LargePostgreSQL.installed():
        table.notes.append("PostgreSQL is not installed: python tests/peers/install.py")
        return table
    server = LargePostgreSQL(durable=True)
    try:
        url = server.fresh()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
            counter = _Counter(connection, server.folder / "data" / "postmaster.pid")
            await _measure_server(plan, table, url, counter)
            for nodes in (1, plan.nodes):
                await _measure_simulated(plan, table, url, counter, nodes)
    finally:
        server.stop()
    return table


class _Counter:
    """Counts the statements of a server, and the processor time of its processes."""

    def __init__(self, connection: psycopg.Connection, pid_file: Path) -> None:
        self._connection = connection
        self._postmaster = psutil.Process(int(pid_file.read_text().partition("\n")[0]))

    async def row(self, what: str, nodes: int, seconds: float) -> Row:
        """Count for some seconds, and return a row of the table."""
        before, cpu = self._statements(), self._processor_seconds()
        began = time.monotonic()
        await anyio.sleep(seconds)
        passed = time.monotonic() - began
        statements = self._statements() - before
        after = self._processor_seconds()
        used = sum(value - cpu.get(pid, 0.0) for pid, value in after.items())
        return {
            "what": what,
            "nodes": nodes,
            "statements/s": round(statements / passed, 2),
            "PostgreSQL, cores": round(used / passed, 4),
        }

    def _statements(self) -> int:
        query = (
            "SELECT sum(calls)::bigint FROM pg_stat_statements WHERE query !~ 'pg_stat_statements'"
        )
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return row[0]

    def _processor_seconds(self) -> dict[int, float]:
        pids = [each.pid for each in self._postmaster.children()]
        return {pid: cpu_seconds([pid]) for pid in pids}


async def _measure_server(plan: Plan, table: Table, url: str, counter: _Counter) -> None:
    folder, port = plan.folder / "nodes", free_port()
    config = statehold_config(folder, QUICK, head=CLUSTER.format(url=url, key=KEY))
    with http_server(statehold(folder / "data", config, "serve", "--port", str(port)), folder):
        async with Asking(port) as asking:
            session = (await asking.first("session_create", {}))["session_id"]
            await asking.call("inc", {"session_id": session})
            await anyio.sleep(2 * IDLE_SECONDS)
            table.rows.append(await counter.row("a server at rest", 1, plan.nodes_seconds))

            async def call() -> None:
                await asking.call("inc", {"session_id": session})

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_repeat, 1 / CALLS_PER_SECOND, 0.0, call)
                what = f"a server with {CALLS_PER_SECOND} calls/s"
                table.rows.append(await counter.row(what, 1, plan.nodes_seconds))
                tasks.cancel_scope.cancel()


async def _measure_simulated(
    plan: Plan, table: Table, url: str, counter: _Counter, nodes: int
) -> None:
    """Have this process send the statements of some nodes."""
    async with AsyncExitStack() as stack:
        opened = [
            await join(
                stack, SQLStore.remote(url), plan.folder / f"{nodes}-{number}", LEASE_SECONDS
            )
            for number in range(nodes)
        ]
        for is_loaded in (False, True):
            async with anyio.create_task_group() as tasks:
                for number, each in enumerate(opened):
                    part = number / nodes
                    rest = LOOK_SECONDS if is_loaded else IDLE_SECONDS
                    tasks.start_soon(_repeat, rest, part, each.store.access.revocations)
                    tasks.start_soon(_repeat, SWEEP_SECONDS, part, partial(sweep, each))
                    if is_loaded:
                        call = await _caller(each, 1000 * nodes + number)
                        tasks.start_soon(_repeat, 1 / CALLS_PER_SECOND, part, call)
                load = f"with {CALLS_PER_SECOND} calls/s each" if is_loaded else "at rest"
                what = f"simulated, {load}"
                table.rows.append(await counter.row(what, nodes, plan.nodes_seconds))
                tasks.cancel_scope.cancel()


async def _caller(opened: Opened, number: int) -> Callable[[], Awaitable[object]]:
    """Create a session, and return a function that journals one call of it."""
    record = session_of(number).model_copy(update={"node": opened.node.id})
    await opened.store.create(record, StateRecord(session_id=record.id), [], per_owner=0)
    positions = count(1)

    async def call() -> None:
        opened.store.append(entry_of(number, next(positions)), opened.node.id)

    return call


async def _repeat(seconds: float, part: float, work: Callable[[], Awaitable[object]]) -> None:
    """Do work in regular intervals, the first time after a part of one."""
    due_at = anyio.current_time() + part * seconds
    while True:
        await anyio.sleep_until(due_at)
        await work()
        due_at += seconds
