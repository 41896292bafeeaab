"""(g) crowd: what one more session with a browser costs, and what many of them do at once."""

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
SECONDS = 3.0
"""How long the calls per second are counted."""
MIB_PER_SESSION, MIB_PER_WHOLE = 20.0, 30.0

Evaluate = Callable[[int], Awaitable[object]]
"""Evaluates something small in the session of a number."""


class Each(NamedTuple):
    """What one more session costs, in MiB: a moment after its last call, and when it has been idle for a while."""

    in_use: float
    idle: float


async def measure(plan: Plan) -> Table:
    table = Table("(g) crowd: MiB of all processes (PSS), and calls of evaluate per second")
    if (reason := possible("statehold http")) is not None:
        table.notes.append(f"left out: {reason}")
        return table
    with served() as site:
        ours = await _grown(table, "statehold http", plan, site, plan.browsers)
        found = {"statehold http": ours}
        # More of them say nothing new and do not fit every machine.
        few = tuple(n for n in plan.browsers if n <= 10)
        for name in ("statehold http whole", "peer http", "peer http settle 0"):
            if (reason := possible(name)) is not None:
                table.notes.append(f"left out: {reason}")
                continue
            found[name] = await _grown(table, name, plan, site, few)
        await _grown(table, "playwright", plan, site, plan.browsers)
    table.targets.extend(_targets(found))
    return table


def _targets(found: dict[str, Each]) -> Generator[Target]:
    ours, peer = found["statehold http"], found.get("peer http")
    yield Target("one more idle session", ours.idle, MIB_PER_SESSION, "MiB")
    if "statehold http whole" in found:
        whole = found["statehold http whole"]
        yield Target("one more idle session, whole Chromium", whole.idle, MIB_PER_WHOLE, "MiB")
    if peer is not None:
        ratio = ours.in_use / peer.in_use
        yield Target("one more session in use against the peer", ratio, 1 / 3, "x")


async def _grown(table: Table, name: str, plan: Plan, site: str, counts: tuple[int, ...]) -> Each:
    """Open more and more sessions of one way to a browser. Returns what each costs besides the first."""
    first, found = 0.0, [0.0]
    async with _crowd(name, plan, site) as (pid, grow, evaluate):
        for count in counts:
            await grow(count)
            idles = [SETTLE_SECONDS]
            if count == counts[-1]:
                idles.append(plan.browsers_idle_seconds)
            for idle in idles:
                await anyio.sleep(idle)
                size = proportional(pid) / 2**20
                first = first or size
                found.append((size - first) / max(1, count - counts[0]))
                row: Row = {
                    "route": name,
                    "sessions": count,
                    "idle s": idle,
                    "MiB": size,
                    "MiB each more": found[-1] if count > counts[0] else None,
                    "per second": await _per_second(evaluate, count),
                }
                table.rows.append(row)
    return Each(*found[-2:])


async def _per_second(evaluate: Evaluate, count: int) -> float:
    done = 0
    until = time.perf_counter() + SECONDS

    async def work(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await evaluate(number)
            done += 1

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(work, number)
    return done / SECONDS


Crowd = tuple[int, Callable[[int], Awaitable[None]], Evaluate]
"""The process to measure with all its children, what opens sessions up to a number, and what calls one."""


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
                await asking.call("browser_navigate", {"session_id": ids[-1], "url": site + PAGE})

        async def evaluate(number: int) -> None:
            given = {"session_id": ids[number], "function": "() => 1 + 1"}
            await asking.call("browser_evaluate", given)

        yield pid, grow, evaluate


@asynccontextmanager
async def serving(folder: Path, browser: str | None = None) -> AsyncGenerator[tuple[int, Asking]]:
    """Serve our browser from a folder: the pid, and what calls it once it answers."""
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
                    await clients[-1].call_tool("browser_navigate", {"url": site + PAGE})

            async def evaluate(number: int) -> None:
                await clients[number].call_tool("browser_evaluate", {"function": "() => 1 + 1"})

            yield process.pid, grow, evaluate


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
                await pages[-1].goto(site + PAGE)

        async def evaluate(number: int) -> None:
            await pages[number].evaluate("() => 1 + 1")

        yield driver, grow, evaluate
        await browser.close()
