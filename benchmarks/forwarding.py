"""(r) The cost of a call that another process forwards to the owner of the session, beside the same call at the owner."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mcp.client.client import Client

from .gateways import http_server, statehold, statehold_config
from .hop import LARGE_KIB, Result, Scenario, in_turns
from .plan import MODE, Era, Plan
from .processes import accepting, free_port, upstreams_of
from .report import Row, Table, Target
from .route import Route
from .samples import quantile
from .servers import running


@dataclass(frozen=True, slots=True)
class Hop:
    """A way between two processes: the routes to them, and the settings and data folders of both."""

    owner: str
    forwarded: str
    settings: str
    folders: tuple[str, str]


UNIX = Hop("owner", "forwarded", "", ("data", "data"))
ADDED_P50_MS = 0.5
ADDED_P99_MS = 2.0
LARGE_RATIO = 1.25
KEY = "0123456789-a-key-of-the-measurements"
CLUSTER = """\
[store]
url = "{url}"
[cluster]
enabled = true
keys = ["{key}"]
"""


async def measure(plan: Plan) -> Table:
    table = Table(
        "(r) forward: latency in ms at the owner of a session and through another process, over HTTP"
    )
    random_order = random.Random(1)
    with running("postgresql") as url:
        if url is None:
            table.notes.append("There is no PostgreSQL, so no cluster was measured.")
        for era in plan.eras:
            for hop in (UNIX,) if url is None else (UNIX, _peer_port(url)):
                async with _open_routes(plan.folder / f"{hop.forwarded}-{era}", era, hop) as routes:
                    for scenario in _scenarios(plan):
                        results = await in_turns(routes, scenario, plan, random_order)
                        table.rows += _rows(era, scenario, hop, results)
                        table.targets += _targets(era, scenario, hop, results)
    return table


def _peer_port(url: str) -> Hop:
    settings = CLUSTER.format(url=url, key=KEY)
    return Hop("owner in a cluster", "over the peer port", settings, ("one", "other"))


def _scenarios(plan: Plan) -> list[Scenario]:
    few = max(2, plan.calls // 5)
    return [
        Scenario("small", 1, "inc", {}, plan.calls),
        Scenario(f"{LARGE_KIB} KiB", 1, "big", {"kib": LARGE_KIB}, few),
    ]


@asynccontextmanager
async def _open_routes(folder: Path, era: Era, hop: Hop) -> AsyncGenerator[list[Route]]:
    """Start two processes, and connect to both for a session of the first one."""
    config = statehold_config(folder, head=hop.settings)
    names = (hop.owner, hop.forwarded)
    async with AsyncExitStack() as stack:
        clients: list[tuple[Client, int]] = []
        for name, data in zip(names, hop.folders, strict=True):
            port = free_port()
            command = statehold(folder / data, config, "serve", "--port", str(port))
            process = stack.enter_context(http_server(command, folder / name))
            await accepting(port, process)
            client = Client(f"http://127.0.0.1:{port}/mcp", mode=MODE[era])
            clients.append((await stack.enter_async_context(client), process.pid))
        owner, pid = clients[0]
        answer = await owner.call_tool("session_create", {})
        assert answer.structured_content is not None, answer
        more = {"session_id": answer.structured_content["session_id"]}
        await owner.call_tool("inc", more)
        upstream = [child.pid for child in upstreams_of(pid, folder / hop.folders[0])]
        yield [
            Route(name, client, [gateway], upstream, more)
            for name, (client, gateway) in zip(names, clients, strict=True)
        ]


def _rows(era: Era, scenario: Scenario, hop: Hop, results: Mapping[str, Result]) -> list[Row]:
    base = quantile(results[hop.owner].latencies, 0.50)
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


def _targets(era: Era, scenario: Scenario, hop: Hop, results: Mapping[str, Result]) -> list[Target]:
    owner, forwarded = results[hop.owner].latencies, results[hop.forwarded].latencies
    if scenario.size != "small":
        ratio = quantile(forwarded, 0.50) / quantile(owner, 0.50)
        return [Target(f"p50 of {scenario.size} {hop.forwarded} ({era})", ratio, LARGE_RATIO, "x")]
    return [
        Target(
            f"p{share * 100:.0f} added to a small call {hop.forwarded} ({era})",
            (quantile(forwarded, share) - quantile(owner, share)) * 1e3,
            most,
            "ms",
        )
        for share, most in ((0.50, ADDED_P50_MS), (0.99, ADDED_P99_MS))
    ]
