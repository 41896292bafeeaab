"""(k) The cost of the Python client beyond the SDK's own: both call the same tool of the same gateway in turns."""

from __future__ import annotations

import random
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters, stdio_client

from statehold.client import Client, connect
from statehold.client.client import Client as AnyClient
from statehold.client.protocol.retry import RetryingRequests, RetryPolicy
from statehold.client.transport.embedded import EmbeddedTransport, load_config
from statehold.server.protocol.server import StateholdServer

from .gateways import http_command, http_server, log_file, stdio_command
from .peers.gateway import Place
from .plan import MODE, QUICK, ROOT, Plan
from .processes import accepting, free_port
from .report import Row, Table, Target
from .samples import quantile, undisturbed

ADDED: float = 1.05
"""The longest allowed time of a call, as a multiple of the same call by the SDK's client."""
EMBEDDED: float = 3.0

Call: TypeAlias = Callable[[], Awaitable[Any]]
Routes: TypeAlias = Mapping[str, Call]


async def measure(plan: Plan) -> Table:
    table = Table("(k) client: latency in ms of a small call of the Python client and of the SDK's")
    for north in plan.norths:
        async with WAYS[north](plan.folder / f"client-{north}") as routes:
            latencies = await in_turns(routes, plan)
        base, ours = latencies["sdk"], latencies["statehold"]
        table.rows += _rows(north, latencies, base)
        table.targets += _targets(f"client over the SDK's ({north})", ours, base, ADDED)
    async with embedded_clients() as routes:
        latencies = await in_turns(routes, plan)
    table.rows += _rows("embedded", latencies, latencies["sdk"])
    table.targets += _targets(
        "embedded over the SDK in memory", latencies["statehold"], latencies["sdk"], EMBEDDED
    )
    table.notes.append(
        "sdk, operation id: with an id whose result survives the server, which then writes twice to the disk before it "
        "answers; the Python client's own ids make a repeat safe without that"
    )
    return table


async def in_turns(routes: Routes, plan: Plan) -> dict[str, list[float]]:
    """Call over every route once per round, each round in another order; the first round warms up."""
    results: dict[str, list[float]] = {name: [] for name in routes}
    random_order, clock = random.Random(1), time.perf_counter
    deadline = time.monotonic() + 2 * plan.scenario_seconds
    for number in range(plan.rounds + 1):
        if number > 2 and time.monotonic() > deadline:
            break
        for name in random_order.sample(list(routes), len(routes)):
            call, latencies = routes[name], results[name] if number else []
            with undisturbed():
                for _ in range(plan.calls):
                    began = clock()
                    await call()
                    latencies.append(clock() - began)
    return results


@asynccontextmanager
async def over_http(folder: Path) -> AsyncGenerator[Routes]:
    port = free_port()
    command = http_command("statehold", Place(folder, port))
    assert command is not None
    with http_server(command, folder) as process:
        await accepting(port, process)
        url = f"http://127.0.0.1:{port}"
        async with McpClient(f"{url}/mcp", mode=MODE["modern"]) as sdk, connect(url) as client:
            yield await both(sdk, client)


@asynccontextmanager
async def over_stdio(folder: Path) -> AsyncGenerator[Routes]:
    """Each client starts a gateway of its own: a pipe has one reader."""
    commands = [stdio_command("statehold", Place(folder / name)) for name in ("sdk", "ours")]
    theirs, ours = commands
    assert theirs is not None
    assert ours is not None
    with log_file(folder) as errors:
        parameters = StdioServerParameters(command=theirs[0], args=theirs[1:], cwd=str(ROOT))
        transport = stdio_client(parameters, errlog=errors)
        async with (
            McpClient(transport, mode=MODE["modern"]) as sdk,
            connect(stdio=ours, cwd=ROOT) as client,
        ):
            yield await both(sdk, client)


async def both(sdk: McpClient, client: Client) -> Routes:
    """Return the calls of both, each in a session of its own."""
    session = await client.create()
    answer = await sdk.call_tool("session_create", {})
    assert answer.structured_content is not None
    session_argument = {"session_id": answer.structured_content["session_id"]}

    def call_with_id() -> Awaitable[Any]:
        operation: Any = {"statehold/operation_id": secrets.token_hex(16)}
        return sdk.call_tool("inc", session_argument, meta=operation)

    return {
        "sdk": lambda: sdk.call_tool("inc", session_argument),
        "sdk, operation id": call_with_id,
        "statehold": lambda: session.call("inc"),
    }


@asynccontextmanager
async def embedded_clients() -> AsyncGenerator[Routes]:
    """Both clients of one gateway in this process, and its counter on a pipe."""
    service = {"command": sys.executable, "args": [str(QUICK)]}
    transport = EmbeddedTransport(load_config(None, {"quick": service}, None))
    async with AnyClient(
        RetryingRequests(transport, policy=RetryPolicy(), elicitation_callback=None)
    ) as client:
        assert transport.gateway is not None
        await transport.gateway.probes.ready()
        server = StateholdServer(transport.gateway, version=version("statehold"))
        async with McpClient(server, mode=MODE["modern"]) as sdk:
            session = await client.create()
            session_argument = {"session_id": session.id}
            yield {
                "sdk": lambda: sdk.call_tool("inc", session_argument),
                "statehold": lambda: session.call("inc"),
            }


WAYS = {"http": over_http, "stdio": over_stdio}


def _rows(over: str, latencies: Mapping[str, list[float]], base: list[float]) -> list[Row]:
    return [
        {
            "over": over,
            "client": name,
            **{f"p{part}": round(quantile(values, part / 100) * 1e3, 3) for part in (10, 50, 99)},
            "x p10": round(quantile(values, 0.1) / quantile(base, 0.1), 2),
            "x p50": round(quantile(values, 0.5) / quantile(base, 0.5), 2),
            "calls": len(values),
        }
        for name, values in latencies.items()
    ]


def _targets(name: str, ours: list[float], base: list[float], bound: float) -> list[Target]:
    return [
        Target(
            f"p{part}: {name}", quantile(ours, part / 100) / quantile(base, part / 100), bound, "x"
        )
        for part in (10, 50)
    ]
