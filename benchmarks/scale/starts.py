"""Starts of a server on a small and on a large store in turns, and calls through its sessions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from ..asking import Asking
from ..gateways import http_server, statehold, statehold_config
from ..plan import QUICK, Plan
from ..processes import free_port
from .filling import Database

RESUMED = 8
"""Paused sessions that a call resumes, in each store."""


async def measure(plan: Plan, databases: Sequence[Database]) -> dict[str, dict[int, list[float]]]:
    """Return the seconds of each request by the number of sessions."""
    whats = ("start", "call of a paused session, by its name", "call")
    waits = {what: {each.count: list[float]() for each in databases} for what in whats}

    def add(what: str, database: Database, began: float) -> None:
        waits[what][database.count].append(time.perf_counter() - began)

    for _ in range(plan.many_starts):
        for each in databases:
            began = time.perf_counter()
            async with _serve(each):
                add("start", each, began)
    async with AsyncExitStack() as stack:
        served = [(each, await stack.enter_async_context(_serve(each))) for each in databases]
        for number in range(RESUMED):
            for each, asking in served:
                began = time.perf_counter()
                await asking.call("inc", {"session_id": f"s{300 + 6 * number}-task"})
                add(whats[1], each, began)
        for _ in range(plan.calls * 5):
            for each, asking in served:
                began = time.perf_counter()
                await asking.call("inc", {"session_id": "s300-task"})
                add("call", each, began)
    return waits


@asynccontextmanager
async def _serve(database: Database) -> AsyncGenerator[Asking]:
    """Start a server, which has answered with a list when the block begins."""
    port = free_port()
    head = "" if database.url is None else f'[store]\nurl = "{database.url}"'
    config = statehold_config(database.folder, QUICK, head=head)
    command = statehold(database.folder / "data", config, "serve", "--port", str(port))
    with http_server(command, database.folder):
        async with Asking(port) as asking:
            await asking.first("session_list", {"limit": 50})
            yield asking
