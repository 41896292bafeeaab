"""(i) The cost of a state: a copy of one, and reads and durable updates per second of sessions that a process holds."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio

from statehold.sessions.clock import SystemClock
from statehold.sessions.core import Core
from statehold.sessions.node import Node
from statehold.sessions.records import LOCAL
from statehold.sessions.registry import Registry
from statehold.sessions.state.patch import copy_json
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.transitions.create import CreationOptions

from .plan import Plan
from .report import Table, Target
from .samples import median, undisturbed

SIZES: tuple[tuple[str, int, float], ...] = (
    ("0.9 KB", 900, 5.0),
    ("10 KB", 10_000, 50.0),
    ("50 KB", 50_000, 250.0),
)
"""Name, bytes, and microseconds that a copy may take (AG-36 to AG-38)."""
REPEATS = 25
CALLERS = 100

Step = Callable[[Registry, str, int], Awaitable[object]]


def sample(size: int) -> dict[str, Any]:
    """Return a state of about so many bytes, such as the findings of an agent."""
    items: list[Any] = []
    state: dict[str, Any] = {"task": "compare prices", "step": 7, "items": items}
    while len(json.dumps(state)) < size:
        number = len(items)
        items.append(
            {
                "title": f"Teapot of cast iron, number {number}",
                "url": f"https://shop.example/kitchen/teapots/{number}?from=search",
                "price": number * 1.25,
                "in_stock": number % 2 == 0,
                "seen_at": "2026-11-21T07:00:00Z",
            }
        )
    return state


async def measure(plan: Plan) -> Table:
    table = Table("(i) state: microseconds of a copy; reads and durable updates per second")
    async with AsyncExitStack() as stack:
        folder = plan.folder / "state"
        store = await stack.enter_async_context(SQLStore.sqlite(folder))
        starting = Node(store, folder, address="bench", clock=time.time)
        node = await stack.enter_async_context(starting)
        registry = await stack.enter_async_context(
            Registry(Core.create(store, node, {}, clock=SystemClock()))
        )
        for name, size, bound in SIZES:
            state = sample(size)
            took = _copy_us(state)
            session = (await registry.create(LOCAL, CreationOptions(state=state))).id
            many = [
                (await registry.create(LOCAL, CreationOptions(state=state))).id
                for _ in range(CALLERS)
            ]
            seconds = plan.store_seconds / 2
            table.rows.append(
                {
                    "state": name,
                    "bytes": len(json.dumps(state)),
                    "copy us": round(took, 2),
                    "reads": await _rate(registry, _read, [session], seconds),
                    "reads of a place": await _rate(registry, _read_place, [session], seconds),
                    "updates": await _rate(registry, _update, [session], seconds),
                    f"updates, {CALLERS} callers": await _rate(
                        registry, _update, [session] * CALLERS, seconds
                    ),
                    f"updates, {CALLERS} sessions": await _rate(registry, _update, many, seconds),
                }
            )
            table.targets.append(Target(f"copy of a state of {name}", took, bound, "us"))
    table.notes.append(
        "every update is durable (fsync) when it is counted; a copy is the best of 25, in CPU time"
    )
    return table


def _copy_us(state: dict[str, Any]) -> float:
    """Return the shortest time of a copy in microseconds, by the clock of this thread, without that of other processes."""
    clock, copies = time.thread_time, 200
    times: list[float] = []
    with undisturbed():
        for _ in range(REPEATS):
            began = clock()
            for _ in range(copies):
                copy_json(state)
            times.append((clock() - began) / copies * 1e6)
    return min(times)


async def _rate(registry: Registry, step: Step, sessions: list[str], seconds: float) -> int:
    """Return the steps per second, with one caller per session."""
    steps = 0
    clock = time.perf_counter

    async def caller(number: int, session: str, ends: float) -> None:
        nonlocal steps
        while clock() < ends:
            await step(registry, session, number)
            steps += 1

    rates: list[float] = []
    for _ in range(3):
        with undisturbed():
            steps, began = 0, clock()
            async with anyio.create_task_group() as tasks:
                for number, session in enumerate(sessions):
                    tasks.start_soon(caller, number, session, began + seconds / 3)
            rates.append(steps / (clock() - began))
    return round(median(rates))


async def _read(registry: Registry, session: str, number: int) -> object:
    return await registry.states.read(LOCAL, session)


async def _read_place(registry: Registry, session: str, number: int) -> object:
    return await registry.states.read(LOCAL, session, "/items/2/price")


async def _update(registry: Registry, session: str, number: int) -> object:
    return await registry.states.update(LOCAL, session, number, path="/items/2/price")
