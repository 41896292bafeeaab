"""(w) A thousand writers: tasks of one client that change the state of one session over HTTP at the same time."""

from __future__ import annotations

import time
from contextlib import suppress

import anyio

from statehold.client import Client, connect
from statehold.client.errors import SessionError
from statehold.client.transport.http import MAX_CONNECTIONS

from .gateways import http_command, http_server
from .peers.gateway import Place
from .plan import Plan
from .processes import accepting, free_port
from .report import Table, Target
from .samples import quantile

SECONDS: float = 8.0
"""The longest allowed time until a thousand writers have their answers."""
ROUNDS = 3


async def measure(plan: Plan) -> Table:
    table = Table(
        f"(w) writers: seconds until {plan.writers:,} concurrent writers have their answers"
    )
    port = free_port()
    command = http_command("statehold", Place(plan.folder / "writers", port))
    assert command is not None
    with http_server(command, plan.folder / "writers") as process:
        await accepting(port, process)
        url = f"http://127.0.0.1:{port}"
        bounds = {f"{MAX_CONNECTIONS} connections": None, "no bound": plan.writers}
        taken: dict[str, list[float]] = {name: [] for name in bounds}
        cpu: dict[str, list[float]] = {name: [] for name in bounds}
        failed = dict.fromkeys(bounds, 0)
        for _ in range(min(ROUNDS, plan.rounds)):
            # In turns, each with a client of its own, whose first requests connect.
            for name, most in bounds.items():
                async with connect(url, max_connections=most) as client:
                    seconds, of_cpu, without_answer = await write(client, plan.writers)
                taken[name].append(seconds)
                cpu[name].append(of_cpu)
                failed[name] += without_answer
    for name, seconds in taken.items():
        table.rows.append(
            {
                "client": name,
                "median s": round(quantile(seconds, 0.5), 2),
                "slowest s": round(max(seconds), 2),
                "writes/s": round(plan.writers / quantile(seconds, 0.5)),
                "client CPU s": round(quantile(cpu[name], 0.5), 2),
                "failed": failed[name],
            }
        )
    bounded, unbounded = (quantile(seconds, 0.5) for seconds in taken.values())
    table.notes.append(f"no bound takes {unbounded / bounded:.1f} times as long")
    if plan.writers >= 1000:
        table.targets.append(Target("1,000 writers over HTTP", bounded, SECONDS, "s"))
    return table


async def write(client: Client, writers: int) -> tuple[float, float, int]:
    """Return the seconds that the writers take, those of CPU in this process, and how many got no answer.

    Each adds a key to the state. No acknowledged one may be missing in the end.
    """
    acknowledged: list[str] = []
    async with client.session() as session:

        async def add(key: str) -> None:
            with suppress(SessionError):
                await session.state.update({key: 1})
                acknowledged.append(key)

        began, cpu_began = time.perf_counter(), time.process_time()
        async with anyio.create_task_group() as tasks:
            for number in range(writers):
                tasks.start_soon(add, str(number))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        state = await session.state.get()
        missing = set(acknowledged) - set(state)
        assert not missing, f"{len(missing)} acknowledged writes are missing"
        return seconds, cpu, writers - len(acknowledged)
