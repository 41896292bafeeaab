"""(g) crowd: the memory of one more session with a browser, and the call rate of many at once."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from pathlib import Path
from typing import NamedTuple

import anyio
from mcp.client.client import Client
from playwright.async_api import Page, async_playwright

from .asking import Asking
from .bare import shell
from .browsers import peer_command, possible, statehold_command, whole
from .gateways import http_server
from .plan import Plan
from .processes import accepting, free_port, own_children, proportional
from .report import Row, Table, Target
from .site import served

PAGE = "/counter"
SETTLE_SECONDS = 2.0
MIB_PER_SESSION, MIB_PER_WHOLE = 20.0, 30.0
PER_GIB, WHOLE_PER_GIB = 50.0, 33.0
MIB_PER_PAUSED = 1.0
"""A paused session holds no memory, but processes do not give all freed memory back."""
TOGETHER = ("statehold http", "playwright")
"""The servers whose sessions are called all at once."""
AT_ONCE = {"evaluate": (2000.0, 2805.0), "navigate": (40.0, 54.0)}
"""Calls per second of all open sessions, and those of Playwright alone on the machine of that target."""

Step = Callable[[int], Awaitable[object]]
"""Does something in the session of a number."""


class Each(NamedTuple):
    """The memory of one more session in MiB: a moment after its last call, after some idle time, and paused."""

    in_use: float
    idle: float
    paused: float | None
    rates: dict[str, float]
    """Calls per second of many sessions at once, by action; empty where that was not measured."""


class Crowd(NamedTuple):
    """The process to measure with its children, the function that opens sessions up to a number, and the actions in one."""

    pid: int
    grow: Callable[[int], Awaitable[None]]
    evaluate: Step
    navigate: Step
    pause: Step | None = None


async def measure(plan: Plan) -> Table:
    table = Table("(g) crowd: MiB of all processes (PSS), and calls per second of all sessions")
    if (reason := possible("statehold http")) is not None:
        table.notes.append(f"left out: {reason}")
        return table
    with served() as site:
        ours = await _grown(table, "statehold http", plan, site, plan.browsers)
        found = {"statehold http": ours}
        # More sessions add no information and do not fit every machine.
        few = tuple(n for n in plan.browsers if n <= 10)
        for name in ("statehold http whole", "peer http", "peer http settle 0"):
            if (reason := possible(name)) is not None:
                table.notes.append(f"left out: {reason}")
                continue
            found[name] = await _grown(table, name, plan, site, few)
        found["playwright"] = await _grown(table, "playwright", plan, site, plan.browsers)
    table.targets.extend(_targets(found))
    return table


def _targets(found: dict[str, Each]) -> Generator[Target]:
    ours, peer = found["statehold http"], found.get("peer http")
    bounds = {
        "statehold http": ("", MIB_PER_SESSION, PER_GIB),
        "statehold http whole": (", whole Chromium", MIB_PER_WHOLE, WHOLE_PER_GIB),
    }
    for name, (kind, most, per_gib) in bounds.items():
        if name in found:
            idle = found[name].idle
            yield Target(f"one more idle session{kind}", idle, most, "MiB")
            yield Target(f"idle sessions per GiB{kind}", 1024 / idle, per_gib, "", ceiling=False)
    if ours.paused is not None:
        yield Target("one more paused session", max(0.0, ours.paused), MIB_PER_PAUSED, "MiB")
    for what, (bound, alone) in AT_ONCE.items():
        rate, bare = ours.rates[what], found["playwright"].rates[what]
        yield Target(f"{what} in all sessions at once", rate, bound, "/s", ceiling=False)
        name = f"{what} in all sessions at once against Playwright"
        yield Target(name, rate / bare, bound / alone, "x", ceiling=False)
    if peer is not None:
        ratio = ours.in_use / peer.in_use
        yield Target("one more session in use against the peer", ratio, 1 / 3, "x")


async def _grown(table: Table, name: str, plan: Plan, site: str, counts: tuple[int, ...]) -> Each:
    """Open more and more sessions of one server. Returns the cost of each besides the first."""
    first, each = 0.0, [0.0]
    paused: float | None = None
    rates: dict[str, float] = {}

    def add(route: str, count: int, idle: float | None) -> Row:
        nonlocal first
        size = proportional(crowd.pid) / 2**20
        first = first or size
        each.append((size - first) / max(1, count - counts[0]))
        row: Row = {"route": route, "sessions": count, "idle s": idle, "MiB": size}
        row["MiB each more"] = each[-1] if count > counts[0] else None
        table.rows.append(row | {"evaluate/s": None, "navigate/s": None})
        return table.rows[-1]

    async with _crowd(name, plan, site) as crowd:
        for count in counts:
            await crowd.grow(count)
            idles = [SETTLE_SECONDS]
            if count == counts[-1]:
                idles.append(plan.browsers_idle_seconds)
            for idle in idles:
                await anyio.sleep(idle)
                add(name, count, idle)["evaluate/s"] = await _per_second(
                    crowd.evaluate, count, plan.browsers_seconds
                )
        in_use, idle = each[-2:]
        if crowd.pause is not None:
            for number in range(counts[0], counts[-1]):
                await crowd.pause(number)
            await anyio.sleep(SETTLE_SECONDS)
            add(f"{name}, paused", counts[-1], None)
            paused = each[-1]
        if name in TOGETHER:
            count = plan.browsers_at_once
            await crowd.grow(count)
            for number in range(count):
                await crowd.evaluate(number)
            await anyio.sleep(SETTLE_SECONDS)
            row = add(name, count, SETTLE_SECONDS)
            for what, step in (("evaluate", crowd.evaluate), ("navigate", crowd.navigate)):
                row[f"{what}/s"] = rates[what] = await _per_second(
                    step, count, plan.browsers_seconds
                )
    return Each(in_use, idle, paused, rates)


async def _per_second(step: Step, count: int, seconds: float) -> float:
    done = 0
    until = time.perf_counter() + seconds

    async def work(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await step(number)
            done += 1

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(work, number)
    return done / seconds


def _crowd(name: str, plan: Plan, site: str) -> AbstractAsyncContextManager[Crowd]:
    if name == "peer http":
        return _peers(plan, site, None, whole())
    if name == "statehold http whole":
        return _ours(plan, site, whole())
    crowds = {"statehold http": _ours, "playwright": _bare}
    return crowds.get(name, _peers)(plan, site)


@asynccontextmanager
async def _ours(plan: Plan, site: str, browser: str | None = None) -> AsyncGenerator[Crowd]:
    folder = plan.folder / ("crowd" if browser is None else "crowd-whole")
    async with serving(folder, browser) as (pid, asking):
        ids: list[str] = []

        async def grow(count: int) -> None:
            while len(ids) < count:
                ids.append((await asking.call("session_create", {}))["session_id"])
                await navigate(len(ids) - 1)

        async def evaluate(number: int) -> None:
            given = {"session_id": ids[number], "function": "() => 1 + 1"}
            await asking.call("browser_evaluate", given)

        async def navigate(number: int) -> None:
            given = {"session_id": ids[number], "url": site + PAGE}
            await asking.call("browser_navigate", given)

        async def pause(number: int) -> None:
            await asking.call("session_pause", {"session_id": ids[number]})

        yield Crowd(pid, grow, evaluate, navigate, pause)


@asynccontextmanager
async def serving(folder: Path, browser: str | None = None) -> AsyncGenerator[tuple[int, Asking]]:
    """Serve our browser from a folder; yield the pid and a client, once the server answers."""
    await anyio.Path(folder).mkdir(exist_ok=True)
    port = free_port()
    with http_server(statehold_command(folder, port, browser), folder) as process:
        async with Asking(port) as asking:
            await asking.first("session_list", {})
            yield process.pid, asking


@asynccontextmanager
async def _peers(
    plan: Plan, site: str, settle: str | None = "0", browser: str | None = None
) -> AsyncGenerator[Crowd]:
    folder, port = plan.folder / "peer-crowd", free_port()
    with http_server(peer_command(settle, port, browser), folder) as process:
        await accepting(port, process)
        async with AsyncExitStack() as stack:
            clients: list[Client] = []

            async def grow(count: int) -> None:
                while len(clients) < count:
                    client = Client(f"http://localhost:{port}/mcp", mode="legacy")
                    clients.append(await stack.enter_async_context(client))
                    await navigate(len(clients) - 1)

            async def evaluate(number: int) -> None:
                await clients[number].call_tool("browser_evaluate", {"function": "() => 1 + 1"})

            async def navigate(number: int) -> None:
                await clients[number].call_tool("browser_navigate", {"url": site + PAGE})

            yield Crowd(process.pid, grow, evaluate, navigate)


@asynccontextmanager
async def _bare(plan: Plan, site: str) -> AsyncGenerator[Crowd]:
    before = own_children()
    async with async_playwright() as playwright:
        (driver,) = own_children() - before
        browser = await playwright.chromium.launch(executable_path=shell(), chromium_sandbox=False)
        pages: list[Page] = []

        async def grow(count: int) -> None:
            while len(pages) < count:
                pages.append(await (await browser.new_context()).new_page())
                await navigate(len(pages) - 1)

        async def evaluate(number: int) -> None:
            await pages[number].evaluate("() => 1 + 1")

        async def navigate(number: int) -> None:
            await pages[number].goto(site + PAGE)
            # Our server returns the snapshot too.
            await pages[number].aria_snapshot(mode="ai")

        yield Crowd(driver, grow, evaluate, navigate)
        await browser.close()
