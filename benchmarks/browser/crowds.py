"""Many sessions with a browser of one server: their number grows, and calls in them are counted."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import anyio
import psutil
from mcp.client.client import Client
from playwright.async_api import Page, async_playwright

from ..asking import Asking, request
from ..callers import calling
from ..gateways import http_server
from ..plan import Plan
from ..processes import accepting, cpu_seconds, family, free_port, own_children
from .bare import shell
from .browsers import peer_command, statehold_command, whole

PAGE = "/counter"
SCRIPT = "() => 1 + 1"

Step = Callable[[int], Awaitable[object]]
"""Does something in the session of a number."""


class Rate(NamedTuple):
    """The calls of many sessions at once per second, and the microseconds of processor time of one call."""

    per_second: float
    server: float
    """Of the process that drives the browser: our gateway, the peer, or the script of Playwright alone."""
    whole: float
    """Of that process, Playwright's driver and the browser."""
    clients: float | None = None
    """Of the clients, where they are processes of their own."""
    failed: int = 0
    """The calls that failed, which the rate leaves out."""


class Count(NamedTuple):
    """The calls that were done and that failed, and the processor seconds of clients that are processes of their own."""

    done: int
    failed: int = 0
    clients: float | None = None


class Measure(Protocol):
    async def __call__(self, what: str, count: int, seconds: float) -> Rate:
        """Count the calls of `evaluate` or `navigate` in a number of sessions at once, at least one in each."""
        ...


class Crowd(NamedTuple):
    """Functions: the processes to measure, open sessions up to a number, count calls, pause one."""

    processes: Callable[[], list[psutil.Process]]
    grow: Callable[[int], Awaitable[None]]
    rate: Measure
    pause: Step | None = None


def opened(name: str, plan: Plan, site: str) -> AbstractAsyncContextManager[Crowd]:
    if name == "peer http":
        return _peers(plan, site, "", whole())
    if name == "statehold http whole":
        return _ours(plan, site, whole())
    crowds = {"statehold http": _ours, "playwright": _bare}
    return crowds.get(name, _peers)(plan, site)


@asynccontextmanager
async def _ours(plan: Plan, site: str, browser: str | None = None) -> AsyncGenerator[Crowd]:
    """Serve ours. Its clients are processes of their own, which are lighter than the server."""
    folder = plan.folder / ("crowd" if browser is None else "crowd-whole")
    async with serving(folder, browser) as (pid, asking):
        ids: list[str] = []
        processes = partial(family, pid, folder / "data")

        async def grow(count: int) -> None:
            while len(ids) < count:
                ids.append((await asking.call("session_create", {}))["session_id"])
                await asking.call(*call("navigate", ids[-1]))

        def call(what: str, session: str) -> tuple[str, dict[str, Any]]:
            more = {"function": SCRIPT} if what == "evaluate" else {"url": site + PAGE}
            return f"browser_{what}", {"session_id": session, **more}

        async def rate(what: str, count: int, seconds: float) -> Rate:
            requests = [request(asking.port, *call(what, session)) for session in ids[:count]]
            async with calling(asking.port, requests) as callers:
                await callers.run(0)

                async def work() -> Count:
                    return Count(*await callers.run(seconds))

                return await _rate(pid, processes, work)

        async def pause(number: int) -> None:
            await asking.call("session_pause", {"session_id": ids[number]})

        yield Crowd(processes, grow, rate, pause)


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
    plan: Plan, site: str, variant: str = "settle 0", browser: str | None = None
) -> AsyncGenerator[Crowd]:
    """Serve the peer. Its sessions are connections that answer its pings, so their clients are the SDK's in this process."""
    folder, port = plan.folder / "peer-crowd", free_port()
    with http_server(peer_command(port, browser, variant=variant), folder) as process:
        await accepting(port, process)
        async with AsyncExitStack() as stack:
            clients: list[Client] = []

            async def grow(count: int) -> None:
                while len(clients) < count:
                    client = Client(f"http://localhost:{port}/mcp", mode="legacy")
                    clients.append(await stack.enter_async_context(client))
                    await steps["navigate"](len(clients) - 1)

            async def evaluate(number: int) -> None:
                await clients[number].call_tool("browser_evaluate", {"function": SCRIPT})

            async def navigate(number: int) -> None:
                await clients[number].call_tool("browser_navigate", {"url": site + PAGE})

            async def rate(what: str, count: int, seconds: float) -> Rate:
                work = _tasks(steps[what], count, seconds)
                return await _rate(process.pid, processes, work)

            steps = {"evaluate": evaluate, "navigate": navigate}
            processes = partial(family, process.pid)
            yield Crowd(processes, grow, rate)


@asynccontextmanager
async def _bare(plan: Plan, site: str) -> AsyncGenerator[Crowd]:
    """Drive Playwright alone, from this process."""
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
            await pages[number].evaluate(SCRIPT)

        async def navigate(number: int) -> None:
            await pages[number].goto(site + PAGE)
            # Our server returns the snapshot too.
            await pages[number].aria_snapshot(mode="ai")

        async def rate(what: str, count: int, seconds: float) -> Rate:
            step = evaluate if what == "evaluate" else navigate
            return await _rate(os.getpid(), processes, _tasks(step, count, seconds))

        processes = partial(family, driver)
        yield Crowd(processes, grow, rate)
        await browser.close()


def _tasks(step: Step, count: int, seconds: float) -> Callable[[], Awaitable[Count]]:
    """Return the work of doing something in a number of sessions at once, from tasks of this process."""

    async def work() -> Count:
        done = 0
        until = time.monotonic() + seconds

        async def repeat(number: int) -> None:
            nonlocal done
            await step(number)
            done += 1
            while time.monotonic() < until:
                await step(number)
                done += 1

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(repeat, number)
        return Count(done)

    return work


async def _rate(
    server: int,
    processes: Callable[[], list[psutil.Process]],
    work: Callable[[], Awaitable[Count]],
) -> Rate:
    """Return the rate of the calls of `work`, and the time that `processes`, one of them the server, use meanwhile."""
    before = _cpu({server, *(process.pid for process in processes())})
    began = time.perf_counter()
    count = await work()
    seconds = time.perf_counter() - began
    used = {pid: after - before[pid] for pid, after in _cpu(before).items()}
    each = 1e6 / max(1, count.done)
    return Rate(
        count.done / seconds,
        used[server] * each,
        sum(used.values()) * each,
        None if count.clients is None else count.clients * each,
        count.failed,
    )


def _cpu(pids: Iterable[int]) -> dict[int, float]:
    """Return the processor seconds of processes; the browser ends some of its own at any time, which are left out."""
    found: dict[int, float] = {}
    for pid in pids:
        with suppress(OSError):
            found[pid] = cpu_seconds([pid])
    return found
