"""console-soak: pages of the console that are left open under traffic; the memory of the server and of the pages stays flat.

The first minutes fill caches and lists, so a page is compared with itself from a quarter of the time on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import httpx2
import psutil
from playwright.async_api import CDPSession, Page

from statehold.tools.browser.devtools.world import send_command

from ..asking import Asking
from ..browser.painting import PATH
from ..browser.site import served
from ..plan import Plan
from ..processes import memory
from ..report import Row, Table, Target
from ..samples import median
from .serving import Serving, person_browser, serving

GROWTH: Final = 1.1
SAMPLES: Final = 60
"""Samples of a run, evenly over its time."""
SHORTEST_SECONDS: Final = 5.0
MIB: Final = 1 << 20


@dataclass(slots=True)
class Traffic:
    """Agents that work as long as a task group runs them, and the numbers of their calls."""

    agent: Asking
    site: str
    counts: dict[str, int] = field(default_factory=dict[str, int])
    failures: list[str] = field(default_factory=list[str])

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.counts[tool] = self.counts.get(tool, 0) + 1
        try:
            return await self.agent.call(tool, arguments)
        except (RuntimeError, httpx2.TransportError) as error:
            self.failures.append(str(error)[:300])
            return {}

    async def come_and_go(self) -> None:
        """Create, use and close sessions, one after the other."""
        number = 0
        while True:
            number += 1
            metadata = {"purpose": f"Count to ten for order {number}"}
            made = await self.call(
                "session_create", {"name": f"order {number}", "metadata": metadata}
            )
            session = {"session_id": made.get("session_id", "")}
            for _ in range(10):
                await self.call("inc", session)
                await anyio.sleep(0.1)
            await self.call("session_close", session)

    async def stay(self, session_id: str) -> None:
        """Use one session for the whole time."""
        while True:
            await self.call("inc", {"session_id": session_id})
            await anyio.sleep(0.5)

    async def browse(self, session_id: str) -> None:
        """Use the browser that is watched."""
        session = {"session_id": session_id}
        while True:
            await self.call("browser_navigate", {**session, "url": f"{self.site}/counter"})
            await anyio.sleep(1)
            await self.call("browser_snapshot", session)
            await anyio.sleep(1)
            await self.call("browser_navigate", {**session, "url": f"{self.site}{PATH}?hz=10"})
            await anyio.sleep(4)


class Gauge:
    """The memory of one page: its JavaScript heap after a collection, its nodes and its listeners."""

    def __init__(self, devtools: CDPSession) -> None:
        self._devtools = devtools

    @classmethod
    async def attach(cls, page: Page) -> Gauge:
        devtools = await page.context.new_cdp_session(page)
        await send_command(devtools, "HeapProfiler.enable")
        return cls(devtools)

    async def read(self) -> dict[str, float]:
        # Twice: the first collection runs finalizers, which free more.
        for _ in range(2):
            await send_command(self._devtools, "HeapProfiler.collectGarbage")
        heap = await send_command(self._devtools, "Runtime.getHeapUsage")
        counters = await send_command(self._devtools, "Memory.getDOMCounters")
        return {
            "JS heap, MiB": heap["usedSize"] / MIB,
            "DOM nodes": float(counters["nodes"]),
            "listeners": float(counters["jsEventListeners"]),
        }


async def measure(plan: Plan) -> Table:
    table = Table(f"console-soak: {plan.minutes:g} minutes of traffic with two pages left open")
    seconds = plan.minutes * 60
    series: dict[tuple[str, str], list[float]] = {}
    with served() as site:
        async with serving(plan.folder / "soak") as server, person_browser() as browser:
            traffic = Traffic(server.agent, site)
            watched = await traffic.call("session_create", {"name": "watched"})
            steady = await traffic.call("session_create", {"name": "steady"})
            start = {"session_id": watched["session_id"], "url": f"{site}/counter"}
            await traffic.call("browser_navigate", start)
            overview = await server.open_console(browser)
            session = await server.open_tab(overview, f"s/{watched['session_id']}")
            gauges = {
                "overview": await Gauge.attach(overview),
                "session page": await Gauge.attach(session),
            }
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(traffic.come_and_go)
                tasks.start_soon(partial(traffic.stay, steady["session_id"]))
                tasks.start_soon(partial(traffic.browse, watched["session_id"]))
                await _sample(server, gauges, series, seconds)
                tasks.cancel_scope.cancel()
            rows = await overview.locator("table.rows tbody tr").count()
            entries = await session.locator("sh-timeline li").count()
    table.rows = [_row(where, what, values) for (where, what), values in series.items()]
    table.targets = [
        Target(f"console-soak: {where}, {what}", _growth(values), GROWTH, "x")
        for (where, what), values in series.items()
    ]
    table.targets.append(
        Target(
            "console-soak: failed calls",
            len(traffic.failures),
            0,
            "",
            evidence="\n".join(traffic.failures[:5]),
        )
    )
    counts = ", ".join(f"{tool} {count:,}" for tool, count in sorted(traffic.counts.items()))
    table.notes.append(f"calls: {counts}")
    table.notes.append(
        f"at the end the overview has {rows:,} rows, the session page {entries:,} entries"
    )
    return table


async def _sample(
    server: Serving,
    gauges: dict[str, Gauge],
    series: dict[tuple[str, str], list[float]],
    seconds: float,
) -> None:
    pause = max(SHORTEST_SECONDS, seconds / SAMPLES)
    end = anyio.current_time() + seconds
    while anyio.current_time() < end:
        await anyio.sleep(pause)
        _add(series, "server", {"RSS, MiB": memory(server.pid)[0] / MIB})
        threads = psutil.Process(server.pid)
        _add(series, "server", {"open files": float(threads.num_fds())})
        for where, gauge in gauges.items():
            _add(series, where, await gauge.read())


def _add(series: dict[tuple[str, str], list[float]], where: str, values: dict[str, float]) -> None:
    for what, value in values.items():
        series.setdefault((where, what), []).append(value)


def _quarters(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the medians of the first, the second and the last quarter."""
    quarter = max(1, len(values) // 4)
    return (
        median(values[:quarter]),
        median(values[quarter : 2 * quarter] or values),
        median(values[-quarter:]),
    )


def _growth(values: Sequence[float]) -> float:
    """Return the last quarter as a multiple of the first."""
    first, _, last = _quarters(values)
    return last / first if first else 1.0


def _row(where: str, what: str, values: Sequence[float]) -> Row:
    first, second, last = _quarters(values)
    return {
        "where": where,
        "what": what,
        "first quarter": first,
        "second": second,
        "last quarter": last,
        "growth": _growth(values),
        "samples": len(values),
    }
