"""(w) Calls per second with one and with two worker processes over HTTP, and the memory of a worker.

Each session is called over a connection of its own. The route that names the workers has its sessions where its connections
lead to; in "any worker", calls come over other connections, and about half of them are passed on.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio
import psutil

from .asking import Asking, request
from .callers import Callers, calling
from .gateways import http_server, statehold, statehold_config
from .plan import LIGHT, Plan
from .processes import cpu_seconds, descendants, free_port
from .report import Table, Target
from .samples import median, ratio

ONE, TWO = "1 worker", "2 workers"
ONE_CORE, ANY = "1 worker, all on one core", "2 workers, any worker"
CORES = 2
CLIENTS = 2
"""Processes that call; they take half the time of a core."""
RATIO = 1.6


@dataclass
class _Route:
    name: str
    callers: Callers
    workers: list[int]
    upstreams: list[int]
    rates: list[float] = field(default_factory=list[float])
    done: int = 0
    failed: int = 0
    worker_cpu: float = 0.0
    upstream_cpu: float = 0.0
    client_cpu: float = 0.0

    async def measure(self, seconds: float) -> None:
        workers, upstreams = cpu_seconds(self.workers), cpu_seconds(self.upstreams)
        began = anyio.current_time()
        calls = await self.callers.run(seconds)
        self.rates.append(calls.done / (anyio.current_time() - began))
        self.done += calls.done
        self.failed += calls.failed
        self.worker_cpu += cpu_seconds(self.workers) - workers
        self.upstream_cpu += cpu_seconds(self.upstreams) - upstreams
        self.client_cpu += calls.cpu

    def per_call(self, seconds: float) -> int:
        return round(seconds / max(1, self.done) * 1e6)


async def measure(plan: Plan) -> Table:
    table = Table("(w) workers: calls per second over HTTP, and CPU in us per call")
    async with _open_routes(plan) as routes:
        order = random.Random(1)
        for _ in range(plan.workers_rounds):
            for route in order.sample(routes, len(routes)):
                await route.measure(plan.workers_seconds)
        for route in routes:
            table.rows.append(
                {
                    "route": route.name,
                    "calls/s": round(median(route.rates)),
                    "workers us": route.per_call(route.worker_cpu),
                    "upstreams us": route.per_call(route.upstream_cpu),
                    "clients us": route.per_call(route.client_cpu),
                    "PSS of a worker MiB": round(_memory(route.workers), 1),
                    "calls": route.done,
                    "failed": route.failed,
                }
            )
        rates = {route.name: route.rates for route in routes}
        workers, one, other = ratio(rates[TWO], rates[ONE])
        name = f"calls per second of 2 workers over those of 1, on {CORES} cores"
        table.targets.append(Target(name, workers, RATIO, "x", False, (one, other)))
        cores, one, other = ratio(rates[TWO], rates[ONE_CORE])
        name = "calls per second of 2 workers on 2 cores over those of 1 on 1"
        table.targets.append(Target(name, cores, RATIO, "x", False, (one, other)))
    table.notes.append(_ceiling(routes))
    return table


def _ceiling(routes: list[_Route]) -> str:
    """Return what two workers could reach at most beside the upstreams and clients."""
    two = next(route for route in routes if route.name == TWO)
    one = next(route for route in routes if route.name == ONE)
    busy = two.worker_cpu + two.upstream_cpu + two.client_cpu
    most = CORES / (busy / max(1, two.done)) * (one.worker_cpu / max(1, one.done))
    return f"upstreams and clients run on the same {CORES} cores, where the first ratio can be {most:.2f} at most"


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
            upstreams = [child for pid in pids for child in _children(pid)]
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
    sizes = [psutil.Process(pid).memory_full_info() for pid in workers]
    return sum(getattr(size, "pss", size.rss) for size in sizes) / len(sizes) / 2**20


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
