"""(a) The cost of a gateway in between: the same counter called directly and through each gateway, in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio

from .plan import Era, North, Plan
from .report import Row, Table, Target
from .route import Route, open_route, possible
from .samples import median, quantile, undisturbed

LARGE_KIB = 300
SETTLE_SECONDS = 0.06
"""Wait before the processor time is read: work after the answers, such as writing a journal, counts for the calls."""

ADDED_MS = 0.9
SHARE_OF_FASTMCP = 0.5


@dataclass(frozen=True, slots=True)
class Scenario:
    size: str
    concurrency: int
    tool: str
    arguments: dict[str, Any]
    calls: int


@dataclass(slots=True)
class Result:
    """The measurements of one route in one scenario: seconds per call, and processor seconds per call of each round."""

    latencies: list[float] = field(default_factory=list[float])
    gateway: list[float] = field(default_factory=list[float])
    upstream: list[float] = field(default_factory=list[float])

    @property
    def cpu(self) -> float:
        return median([a + b for a, b in zip(self.gateway, self.upstream, strict=True)])


Key = tuple[North, Era, Scenario]


async def measure(plan: Plan) -> Table:
    table = Table("(a) hop: latency in ms, CPU of the gateway and of the counter in us per call")
    missing: set[str] = set()
    random_order = random.Random(1)
    for north in plan.norths:
        for era in plan.eras:
            reasons = {n: possible(n, north, era, plan.folder / "probe") for n in plan.routes}
            missing |= {reason for reason in reasons.values() if reason}
            names = [name for name, reason in reasons.items() if reason is None]
            async with AsyncExitStack() as stack:
                folder = plan.folder / f"hop-{north}-{era}"
                routes = [
                    await stack.enter_async_context(open_route(name, north, era, folder / name))
                    for name in names
                ]
                for scenario in scenarios(plan):
                    results = await in_turns(routes, scenario, plan, random_order)
                    table.rows += _rows(north, era, scenario, results)
                    table.targets += _targets(north, era, scenario, results)
    table.notes = [f"left out: {reason}" for reason in sorted(missing)]
    table.notes.append("x p10 and x CPU: as a multiple of direct over the same transport")
    return table


def scenarios(plan: Plan) -> list[Scenario]:
    large = {"kib": LARGE_KIB}
    few = max(2, plan.calls // 5)
    return [
        Scenario("small", 1, "inc", {}, plan.calls),
        Scenario("small", 8, "inc", {}, plan.calls * 2),
        Scenario(f"{LARGE_KIB} KiB", 1, "big", large, few),
        Scenario(f"{LARGE_KIB} KiB", 8, "big", large, few * 2),
    ]


async def in_turns(
    routes: Sequence[Route], scenario: Scenario, plan: Plan, random_order: random.Random
) -> dict[str, Result]:
    """Measure every route once per round, each round in another order, so that a busy moment affects all alike."""
    results = {route.name: Result() for route in routes}
    for route in routes:
        await _block(route, scenario, Result())
    deadline = time.monotonic() + plan.scenario_seconds
    for number in range(plan.rounds):
        if number >= 2 and time.monotonic() > deadline:
            break
        for route in random_order.sample(routes, len(routes)):
            await _block(route, scenario, results[route.name])
    return results


async def _block(route: Route, scenario: Scenario, result: Result) -> None:
    numbers = iter(range(scenario.calls))
    clock = time.perf_counter

    async def caller() -> None:
        for _ in numbers:
            began = clock()
            await route.call(scenario.tool, scenario.arguments)
            result.latencies.append(clock() - began)

    gateway, upstream = route.cpu()
    with undisturbed():
        async with anyio.create_task_group() as tasks:
            for _ in range(scenario.concurrency):
                tasks.start_soon(caller)
        await anyio.sleep(SETTLE_SECONDS)
    after = route.cpu()
    result.gateway.append((after[0] - gateway) / scenario.calls)
    result.upstream.append((after[1] - upstream) / scenario.calls)


def _rows(north: North, era: Era, scenario: Scenario, results: dict[str, Result]) -> list[Row]:
    direct = results.get("direct")
    rows: list[Row] = []
    for name, result in results.items():
        p10 = quantile(result.latencies, 0.10)
        rows.append(
            {
                "over": north,
                "era": era,
                "result": scenario.size,
                "at once": scenario.concurrency,
                "route": name,
                "p10": round(p10 * 1e3, 3),
                "p50": round(quantile(result.latencies, 0.50) * 1e3, 3),
                "p99": round(quantile(result.latencies, 0.99) * 1e3, 3),
                "x p10": _ratio(p10, direct and quantile(direct.latencies, 0.10)),
                "gateway CPU": round(median(result.gateway) * 1e6, 1),
                "counter CPU": round(median(result.upstream) * 1e6, 1),
                "CPU": round(result.cpu * 1e6, 1),
                "x CPU": _ratio(result.cpu, direct and direct.cpu),
                "calls": len(result.latencies),
            }
        )
    return rows


def _ratio(value: float, base: float | None) -> float | None:
    return None if not base else round(value / base, 2)


def _targets(
    north: North, era: Era, scenario: Scenario, results: dict[str, Result]
) -> list[Target]:
    if "statehold" not in results:
        return []
    ours = results["statehold"]
    where = f"{north} {era}, {scenario.size}, {scenario.concurrency} at once"
    targets: list[Target] = []
    plain = scenario.size == "small" and scenario.concurrency == 1
    if plain and north == "http" and "direct" in results:
        direct = quantile(results["direct"].latencies, 0.10)
        difference = (quantile(ours.latencies, 0.10) - direct) * 1e3
        targets.append(Target(f"p10 added to direct ({where})", difference, ADDED_MS, "ms"))
    if "fastmcp" in results:
        theirs = results["fastmcp"]
        alone = median(ours.gateway) / median(theirs.gateway)
        whole = ours.cpu / theirs.cpu
        for what, share in (("gateway CPU", alone), ("CPU with the counter", whole)):
            name = f"{what} against fastmcp ({where})"
            targets.append(Target(name, share, SHARE_OF_FASTMCP, "x"))
    return targets
