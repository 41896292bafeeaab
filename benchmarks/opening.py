"""(b) The time to open a session, session_create and the first call, compared with starting the same server alone."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from .gateways import http_server, log_file, statehold, statehold_config
from .plan import COUNTER, MODE, QUICK, ROOT, Plan, python
from .processes import accepting, free_port
from .report import Table, Target
from .samples import median, quantile, undisturbed

ADDED_MS = 30.0
SERVERS = {"SDK server": COUNTER, "plain Python server": QUICK}


async def measure(plan: Plan) -> Table:
    table = Table("(b) open: from nothing to the answer of the first call, in ms")
    for name, upstream in SERVERS.items():
        folder = plan.folder / f"open-{upstream.stem}"
        alone, warm, confined = await _warm(upstream, folder, plan.opens)
        cold = [await _cold(upstream, folder / f"cold{n}") for n in range(max(2, plan.opens // 4))]
        differences = [ours - theirs for ours, theirs in zip(warm, alone, strict=True)]
        for way, values in (
            ("alone, with the SDK client", alone),
            ("session_create + call, Statehold running", warm),
            ("the same, with a sandbox", confined),
            ("the same, Statehold started for it", cold),
        ):
            table.rows.append(
                {
                    "server": name,
                    "way": way,
                    "p10": quantile(values, 0.1),
                    "p50": median(values),
                    "max": max(values),
                    "times": len(values),
                }
            )
        table.targets.append(
            Target(f"opening a warm session adds ({name})", median(differences), ADDED_MS, "ms")
        )
    return table


async def _warm(
    upstream: Path, folder: Path, times: int
) -> tuple[list[float], list[float], list[float]]:
    """Return the times of starting the server alone, of opening a session, and of one with a sandbox, taken in turns."""
    alone: list[float] = []
    through: list[float] = []
    confined: list[float] = []
    sandbox = 'sandbox = "auto"\n'
    async with (
        _running(upstream, folder) as client,
        _running(upstream, folder / "in", sandbox) as other,
    ):
        for _ in range(times):
            alone.append(await _start_alone(python(upstream), folder))
            through.append(await _open_session(client))
            confined.append(await _open_session(other))
    return alone, through, confined


@asynccontextmanager
async def _running(upstream: Path, folder: Path, more: str = "") -> AsyncGenerator[Client]:
    """Run a Statehold with one service, and yield a client that has opened a session."""
    port = free_port()
    config = statehold_config(folder, upstream, more=more)
    command = statehold(folder / "data", config, "serve", "--port", str(port))
    with http_server(command, folder) as process:
        await accepting(port, process)
        async with Client(f"http://127.0.0.1:{port}/mcp", mode=MODE["modern"]) as client:
            await _open_session(client)
            yield client


async def _open_session(client: Client) -> float:
    """Return the ms to open a session and call a tool in it; it is closed afterwards."""
    with undisturbed():
        began = time.perf_counter()
        answer_of_create = await client.call_tool("session_create", {})
        assert answer_of_create.structured_content is not None, answer_of_create
        session = {"session_id": answer_of_create.structured_content["session_id"]}
        answer = await client.call_tool("inc", session)
        took = time.perf_counter() - began
    assert not answer.is_error, answer
    await client.call_tool("session_close", {**session, "force": True})
    return took * 1e3


async def _start_alone(command: list[str], folder: Path) -> float:
    """Return the ms to start a server by itself, connect a client and call a tool."""
    parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=str(ROOT))
    with log_file(folder) as errors, undisturbed():
        began = time.perf_counter()
        async with Client(stdio_client(parameters, errlog=errors), mode="legacy") as client:
            answer = await client.call_tool("inc", {})
            took = time.perf_counter() - began
            assert not answer.is_error, answer
    return took * 1e3


async def _cold(upstream: Path, folder: Path) -> float:
    command = statehold(folder / "data", statehold_config(folder, upstream))
    parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=str(ROOT))
    with log_file(folder) as errors:
        began = time.perf_counter()
        async with Client(stdio_client(parameters, errlog=errors), mode="legacy") as client:
            ready = time.perf_counter() - began
            return ready * 1e3 + await _open_session(client)
