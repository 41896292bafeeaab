"""(w) Calls per second with one and with two worker processes over HTTP, and the memory of a worker.

Each session is called over a connection of its own. The route that names the workers has its sessions where its connections
lead to; in "any worker", calls come over other connections, and about half of them are passed on.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio
import psutil

from .asking import Asking, request
from .callers import Callers, Calls, calling
from .gateways import http_server, statehold, statehold_config
from .plan import LIGHT, Plan
from .processes import cpu_seconds, descendants, free_port, pss, upstreams_of
from .report import Row, Table, Target
from .samples import median, ratio

ONE, TWO = "1 worker", "2 workers"
ONE_CORE, ANY = "1 worker, all on one core", "2 workers, any worker"
CORES = 2
CLIENTS = 2
"""Processes that call."""
SPARE = 3
"""Rounds for each one that counts; those count in which other programs used the least."""
RATIO = 1.6


class _Round(NamedTuple):
    """The calls of one route in a time, and the processor seconds that they and other programs used."""

    seconds: float
    calls: Calls
    workers: float
    upstreams: float
    others: float

    @property
    def rate(self) -> float:
        return self.calls.done / self.seconds

    @property
    def own(self) -> float:
        return self.workers + self.upstreams + self.calls.cpu


@dataclass
class _Route:
    name: str
    callers: Callers
    workers: list[int]
    upstreams: list[int]
    rounds: list[_Round] = field(default_factory=list[_Round])

    async def measure(self, seconds: float) -> None:
        before = (cpu_seconds(self.workers), cpu_seconds(self.upstreams), _busy_seconds())
        began = anyio.current_time()
        calls = await self.callers.run(seconds)
        took = anyio.current_time() - began
        after = (cpu_seconds(self.workers), cpu_seconds(self.upstreams), _busy_seconds())
        workers, upstreams, busy = (b - a for a, b in zip(before, after, strict=True))
        others = busy - workers - upstreams - calls.cpu
        self.rounds.append(_Round(took, calls, workers, upstreams, others))

    def keep_calmest(self, count: int) -> None:
        """Forget the rounds that other programs disturbed most."""
        self.rounds.sort(key=lambda one: one.others / one.seconds)
        del self.rounds[count:]

    @property
    def rates(self) -> list[float]:
        return [one.rate for one in self.rounds]

    def row(self) -> Row:
        done = sum(one.calls.done for one in self.rounds)

        def per_call(seconds: Iterable[float]) -> int:
            return round(sum(seconds) / max(1, done) * 1e6)

        return {
            "route": self.name,
            "calls/s": round(median(self.rates)),
            "workers us": per_call(one.workers for one in self.rounds),
            "upstreams us": per_call(one.upstreams for one in self.rounds),
            "clients us": per_call(one.calls.cpu for one in self.rounds),
            "PSS of a worker MiB": round(_memory(self.workers), 1),
            "others %": round(median([one.others / one.seconds * 100 for one in self.rounds])),
            "calls": done,
            "failed": sum(one.calls.failed for one in self.rounds),
        }


async def measure(plan: Plan) -> Table:
    table = Table("(w) workers: calls per second over HTTP, and CPU in us per call")
    async with _open_routes(plan) as routes:
        order = random.Random(1)
        for _ in range(plan.workers_rounds * SPARE):
            for route in order.sample(routes, len(routes)):
                await route.measure(plan.workers_seconds)
        for route in routes:
            route.keep_calmest(plan.workers_rounds)
            table.rows.append(route.row())
    found = {route.name: route for route in routes}
    for base, name in (
        (ONE, f"calls per second of 2 workers over those of 1, on {CORES} cores"),
        (ONE_CORE, f"calls per second of 2 workers on {CORES} cores over those of 1 on 1"),
    ):
        value, low, high = ratio(found[TWO].rates, found[base].rates)
        table.targets.append(Target(name, value, RATIO, "x", False, (low, high)))
    table.notes.append(
        f"upstreams and clients run on the same {CORES} cores, where the first ratio can be "
        f"{_most(found[ONE], found[TWO]):.2f} at most"
    )
    return table


def _most(one: _Route, two: _Route) -> float:
    """Return the highest ratio of calls per second: two workers leave no core idle, and one worker fills one core."""
    busy = sum(r.own for r in two.rounds) / sum(r.calls.done for r in two.rounds)
    alone = sum(r.workers for r in one.rounds) / sum(r.calls.done for r in one.rounds)
    return CORES / busy * alone


def _busy_seconds() -> float:
    """Return the processor seconds that all programs have used since the start of the machine."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + getattr(times, "softirq", 0.0)


@asynccontextmanager
async def _open_routes(plan: Plan) -> AsyncGenerator[list[_Route]]:
    async with AsyncExitStack() as stack:
        routes: list[_Route] = []
        for name, workers, cores in ((ONE_CORE, 1, 1), (ONE, 1, CORES), (TWO, 2, CORES)):
            folder, port = plan.folder / name, free_port()
            config = statehold_config(folder, LIGHT)
            serve = ("serve", "--port", str(port), "--workers", str(workers))
            requests = [_pinned(port, number) for number in range(plan.workers_sessions)]
            with _on_cores(cores):
                process = stack.enter_context(
                    http_server(statehold(folder / "data", config, *serve), folder)
                )
                async with Asking(port) as asking:
                    await asking.first("session_list", {})
                callers = await stack.enter_async_context(
                    calling(port, requests, processes=CLIENTS)
                )
            # The first call of a session opens it in the worker that gets the call.
            await callers.run(0)
            pids = [process.pid] if workers == 1 else _children(process.pid)
            children = {child.pid for child in upstreams_of(process.pid, folder / "data")}
            upstreams = sorted(children - {*pids})
            routes.append(_Route(name, callers, pids, upstreams))
            if workers > 1:
                others = await stack.enter_async_context(calling(port, requests, processes=CLIENTS))
                await others.run(0)
                routes.append(_Route(ANY, others, pids, upstreams))
        yield routes


def _pinned(port: int, number: int) -> bytes:
    return request(port, "inc", {}, path=f"/s/bench{number}/mcp")


def _children(pid: int) -> list[int]:
    return [child.pid for child in descendants(pid) if child.ppid() == pid]


def _memory(workers: list[int]) -> float:
    return sum(map(pss, workers)) / len(workers) / 2**20


@contextmanager
def _on_cores(count: int) -> Generator[None]:
    """Have programs that are started in the block use the first cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


__all__ = ["measure"]
