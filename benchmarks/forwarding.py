"""(r) The cost of a call that another process forwards to the owner of the session, beside the same call at the owner."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from mcp.client.client import Client

from .gateways import http_server, statehold, statehold_config
from .hop import LARGE_KIB, Result, Scenario, in_turns
from .plan import MODE, Era, Plan
from .processes import accepting, descendants, free_port
from .report import Row, Table, Target
from .route import Route
from .samples import quantile

OWNER, FORWARDED = "owner", "forwarded"
ADDED_P50_MS = 0.5
ADDED_P99_MS = 2.0
LARGE_RATIO = 1.25


async def measure(plan: Plan) -> Table:
    table = Table(
        "(r) forward: latency in ms at the owner of a session and through another process, over HTTP"
    )
    random_order = random.Random(1)
    for era in plan.eras:
        async with _open_routes(plan.folder / f"forward-{era}", era) as routes:
            for scenario in _scenarios(plan):
                results = await in_turns(routes, scenario, plan, random_order)
                table.rows += _rows(era, scenario, results)
                table.targets += _targets(era, scenario, results)
    return table


def _scenarios(plan: Plan) -> list[Scenario]:
    few = max(2, plan.calls // 5)
    return [
        Scenario("small", 1, "inc", {}, plan.calls),
        Scenario(f"{LARGE_KIB} KiB", 1, "big", {"kib": LARGE_KIB}, few),
    ]


@asynccontextmanager
async def _open_routes(folder: Path, era: Era) -> AsyncGenerator[list[Route]]:
    """Start two processes on one data folder, and connect to both for a session of the first one."""
    config = statehold_config(folder)
    async with AsyncExitStack() as stack:
        clients: list[tuple[Client, int]] = []
        for name in (OWNER, FORWARDED):
            port = free_port()
            command = statehold(folder / "data", config, "serve", "--port", str(port))
            process = stack.enter_context(http_server(command, folder / name))
            await accepting(port, process)
            client = Client(f"http://127.0.0.1:{port}/mcp", mode=MODE[era])
            clients.append((await stack.enter_async_context(client), process.pid))
        owner, pid = clients[0]
        answer = await owner.call_tool("session_create", {})
        assert answer.structured_content is not None, answer
        more = {"session_id": answer.structured_content["session_id"]}
        await owner.call_tool("inc", more)
        upstream = [child.pid for child in descendants(pid)]
        yield [
            Route(name, client, gateway, upstream, more)
            for name, (client, gateway) in zip((OWNER, FORWARDED), clients, strict=True)
        ]


def _rows(era: Era, scenario: Scenario, results: Mapping[str, Result]) -> list[Row]:
    base = quantile(results[OWNER].latencies, 0.50)
    return [
        {
            "era": era,
            "result": scenario.size,
            "route": name,
            "p50": round(quantile(result.latencies, 0.50) * 1e3, 3),
            "p99": round(quantile(result.latencies, 0.99) * 1e3, 3),
            "x p50": round(quantile(result.latencies, 0.50) / base, 2),
            "calls": len(result.latencies),
        }
        for name, result in results.items()
    ]


def _targets(era: Era, scenario: Scenario, results: Mapping[str, Result]) -> list[Target]:
    owner, forwarded = results[OWNER].latencies, results[FORWARDED].latencies
    if scenario.size != "small":
        ratio = quantile(forwarded, 0.50) / quantile(owner, 0.50)
        return [Target(f"p50 of a forwarded {scenario.size} ({era})", ratio, LARGE_RATIO, "x")]
    return [
        Target(
            f"p{share * 100:.0f} added by forwarding ({era})",
            (quantile(forwarded, share) - quantile(owner, share)) * 1e3,
            most,
            "ms",
        )
        for share, most in ((0.50, ADDED_P50_MS), (0.99, ADDED_P99_MS))
    ]
