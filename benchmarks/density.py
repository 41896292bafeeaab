"""(c) The memory that the Statehold process needs for a live and for a paused session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from .asking import Asking
from .gateways import http_server, statehold, statehold_config
from .plan import QUICK, Plan
from .processes import free_port, memory, upstreams_of
from .report import Row, Table, Target

KIB_PER_PAUSED = 4.0
PROCESS_MIB = 100.0
AT_ONCE = 8
SETTLE_SECONDS = 1.0
WARM_UP = 200
"""Sessions that are opened and closed first, to fill caches that do not grow with the number of sessions."""


async def measure(plan: Plan) -> Table:
    table = Table(
        "(c) density: memory of the Statehold process in KiB, resident (RSS) and its own (USS)"
    )
    folder, port = plan.folder / "density", free_port()
    config = statehold_config(folder, QUICK, more='pause = "release"')
    with http_server(
        statehold(folder / "data", config, "serve", "--port", str(port)), folder
    ) as process:
        async with Asking(port) as asking:
            await asking.first("session_list", {})
            await _run_many(WARM_UP, lambda number: _come_and_go(asking, f"warm{number}"))
            previous = await _row(table, process.pid, "start, after a warm-up", 0, None)
            await _run_many(plan.paused, lambda number: _create_paused(asking, f"paused{number}"))
            before = previous
            previous = await _row(table, process.pid, "paused, never opened", plan.paused, previous)
            per_paused = max(0.0, (previous[1] - before[1]) / 1024 / plan.paused)
            process_mib = previous[1] / 2**20
            ids = await _run_many(plan.live, lambda number: _live(asking, f"live{number}"))
            previous = await _row(table, process.pid, "live", plan.live, previous)
            per_child = _per_child(process.pid, folder / "data")
            await _run_many(
                len(ids), lambda n: asking.call("session_pause", {"session_id": ids[n]})
            )
            await _row(table, process.pid, "live ones paused (released)", plan.live, previous)
    table.notes.append(f"each live session has an upstream of its own besides: {per_child}")
    table.targets.append(Target("memory of a paused session", per_paused, KIB_PER_PAUSED, "KiB"))
    table.targets.append(
        Target(f"process with {plan.paused:,} paused sessions", process_mib, PROCESS_MIB, "MiB")
    )
    return table


async def _row(
    table: Table, pid: int, state: str, sessions: int, previous: tuple[int, int] | None
) -> tuple[int, int]:
    await anyio.sleep(SETTLE_SECONDS)
    rss, own = memory(pid)
    row: Row = {
        "state": state,
        "sessions": sessions,
        "RSS": rss // 1024,
        "USS": own // 1024,
        "USS per session": None,
    }
    if previous is not None:
        row["USS per session"] = round((own - previous[1]) / 1024 / sessions, 2)
    table.rows.append(row)
    return rss, own


def _per_child(pid: int, data: Path) -> str:
    sizes = [memory(child.pid)[1] for child in upstreams_of(pid, data)]
    return (
        f"{sum(sizes) / len(sizes) / 2**20:.1f} MiB of its own for a Python of the standard library"
    )


async def _run_many(count: int, work: Callable[[int], Awaitable[Any]]) -> list[Any]:
    numbers = iter(range(count))
    results: list[Any] = []

    async def worker() -> None:
        results.extend([await work(number) for number in numbers])

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(worker)
    return results


async def _create(asking: Asking, name: str) -> str:
    return (await asking.call("session_create", {"name": name}))["session_id"]


async def _live(asking: Asking, name: str) -> str:
    session = await _create(asking, name)
    await asking.call("inc", {"session_id": session})
    return session


async def _create_paused(asking: Asking, name: str) -> None:
    await asking.call("session_pause", {"session_id": await _create(asking, name)})


async def _come_and_go(asking: Asking, name: str) -> None:
    session = await _create(asking, name)
    await asking.call("session_pause", {"session_id": session})
    await asking.call("session_close", {"session_id": session})
