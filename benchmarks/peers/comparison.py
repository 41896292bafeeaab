"""(y) peers: the same counter through every gateway that is here: latency, CPU, memory, and what it keeps."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
from mcp.client.client import Client

from ..gateways import HEADS, peer
from ..hop import Result, in_turns, scenarios
from ..plan import MODE, Era, North, Plan
from ..processes import pss
from ..report import Row, Table
from ..route import (
    connect_over_stdio,
    create_session,
    open_place,
    open_route,
    possible,
    serve,
)
from ..samples import median, quantile
from .gateway import Place
from .rows import PEERS

NAMES: Final = ("direct", "statehold", *(gateway.name for gateway in PEERS[1:]))
COUNT: Final = 3
"""The calls of a session before its client is gone."""
KEPT: Final = ("reconnect", "restart", "kill -9", "shared")
TRIAL_SECONDS: Final = 180.0
MIB: Final = 1 << 20
Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Client, int]]]


async def measure(plan: Plan) -> Table:
    title = "(y) peers: ms and us of CPU per call, MiB, ms of a session start, and whether a count is kept"
    table = Table(title)
    names = plan.peers or NAMES
    for north in plan.norths:
        for era in plan.eras:
            folder = plan.folder / f"peers-{north}-{era}"
            await _measure_one_way(table, plan, names, north, era, folder)
    table.notes.append("x p10: as a multiple of direct over the same transport")
    return table


async def _measure_one_way(
    table: Table, plan: Plan, names: tuple[str, ...], north: North, era: Era, folder: Path
) -> None:
    kept: dict[str, Row] = {}
    for name in names:
        reason = possible(name, north, era, folder / "probe")
        if reason is None:
            try:
                with anyio.fail_after(TRIAL_SECONDS):
                    kept[name] = await what_is_kept(name, north, era, folder / f"kept-{name}")
            except Exception as error:
                reason = f"{name} over {north}, {era}: {_shortened(error)}"
        if reason is not None:
            note = f"left out: {reason}"
            table.notes += [] if note in table.notes else [note]
    async with AsyncExitStack() as stack:
        routes = [
            await stack.enter_async_context(open_route(name, north, era, folder / name))
            for name in kept
        ]
        small, large = [scenario for scenario in scenarios(plan) if scenario.concurrency == 1]
        order = random.Random(1)
        fast = await in_turns(routes, small, plan, order)
        slow = await in_turns(routes, large, plan, order)
        for route in routes:
            row: Row = {"over": north, "era": era, "gateway": route.name}
            row["version"] = version_of(route.name)
            row |= _latency(fast, route.name, "") | _latency(slow, route.name, "300 KiB ")
            row["MiB"] = round(sum(pss(pid) for pid in route.gateway) / MIB, 1)
            table.rows.append(row | kept[route.name])


def _latency(results: dict[str, Result], name: str, prefix: str) -> Row:
    result, direct = results[name], results.get("direct")
    p10 = quantile(result.latencies, 0.1)
    base = None if direct is None else quantile(direct.latencies, 0.1)
    return {
        f"{prefix}p10": round(p10 * 1e3, 2),
        f"{prefix}p50": round(quantile(result.latencies, 0.5) * 1e3, 2),
        f"{prefix}x p10": None if base is None else round(p10 / base, 2),
        f"{prefix}CPU": round(median(result.gateway) * 1e6),
    }


async def what_is_kept(name: str, north: North, era: Era, folder: Path) -> Row:
    """Count in a session, and look for the count when the client, or the gateway, was gone.

    "shared" says whether a session of another client finds it too, "start" is the time from connecting to an answer.
    """
    starts: list[float] = []

    async def finds(connect: Connect, counted: _Counted) -> str:
        began = time.monotonic()
        async with connect() as (client, _):
            found = await counted.is_found(client)
        starts.append(time.monotonic() - began)
        return "yes" if found else "no"

    row: Row = dict.fromkeys(KEPT)
    async with open_place(name, folder) as place:
        # Over stdio a new connection is a new gateway.
        for end in KEPT[:3] if north == "http" else ("reconnect", "kill -9"):
            async with _serving(name, north, era, place) as connect:
                async with connect() as (client, pid):
                    counted = await _count(name, client)
                    if end == "reconnect":
                        row["shared"] = await finds(connect, _Counted(name, counted.value, None))
                    elif end == "kill -9":
                        os.kill(pid, signal.SIGKILL)
                if end == "reconnect":
                    row[end] = await finds(connect, counted)
            if end != "reconnect":
                async with _serving(name, north, era, place) as connect:
                    row[end] = await finds(connect, counted)
    return {"start": round(median(starts) * 1e3, 1), **row}


@asynccontextmanager
async def _serving(name: str, north: North, era: Era, place: Place) -> AsyncGenerator[Connect]:
    """Run a gateway, which gets SIGTERM at the end; yield how clients connect."""
    if north == "stdio":
        yield partial(connect_over_stdio, name, era, place)
        return
    async with serve(name, place) as (url, process):

        @asynccontextmanager
        async def connect() -> AsyncGenerator[tuple[Client, int]]:
            async with Client(url, mode=MODE[era]) as client:
                yield client, process.pid

        yield connect


@dataclass(frozen=True, slots=True)
class _Counted:
    """The count of a session, and the arguments that name it; None for a new one."""

    name: str
    value: str
    session: dict[str, Any] | None

    async def is_found(self, client: Client) -> bool:
        """Whether a new connection finds it."""
        route = await create_session(self.name, client, self.session)
        return await route.call("get", {}) == self.value


async def _count(name: str, client: Client) -> _Counted:
    route = await create_session(name, client)
    answers = [await route.call("inc", {}) for _ in range(COUNT)]
    return _Counted(name, answers[-1], route.more)


def version_of(name: str) -> str:
    return version("statehold") if name in HEADS else peer(name).version()


def _shortened(error: BaseException) -> str:
    """Return the first cause in one line."""
    causes: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if causes:
        return _shortened(causes[0])
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


__all__ = ["measure", "what_is_kept"]
