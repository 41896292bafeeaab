"""(f) browser: our browser, @playwright/mcp and Playwright itself on the same pages, in turns."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ..plan import Plan
from ..report import Row, Table, Target
from ..samples import median, quantile, ratio, undisturbed
from .browsers import Browser, opened, present
from .site import served

ROUTES = (
    "playwright",
    "sdk stdio",
    "statehold stdio",
    "statehold http",
    "peer stdio",
    "peer stdio settle 0",
    "peer http",
    "peer http settle 0",
)
SMALL, LISTED, MEDIUM = "/counter", "/many?refs=15", "/many?refs=533"
"""Pages of 9, 46 and 1,600 elements with a ref."""

OPEN, FIRST = "open", "first navigate"
"""The time from the start of the server to a session, and that of its first page, for which most start the browser."""

Step = Callable[[Browser, str], Awaitable[object]]


@dataclass(slots=True)
class Result:
    seconds: list[float] = field(default_factory=list[float])

    def add(self, taken: float) -> None:
        self.seconds.append(taken)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One action of a caller on a page that was opened before, and its number per round."""

    name: str
    page: str
    times: int
    step: Step


async def _navigate_small(browser: Browser, site: str) -> None:
    await browser.call("browser_navigate", {"url": site + SMALL})


async def _navigate_medium(browser: Browser, site: str) -> None:
    await browser.call("browser_navigate", {"url": site + MEDIUM})


async def _see(browser: Browser, site: str) -> None:
    text = await browser.call("browser_navigate", {"url": site + MEDIUM})
    if "[ref=" not in text:
        # The peer answers with the name of a file.
        assert "[ref=" in await browser.call("browser_snapshot", {})


async def _click(browser: Browser, site: str) -> None:
    await browser.call("browser_click", {"target": browser.ref, "element": "Increment"})


async def _evaluate(browser: Browser, site: str) -> None:
    await browser.call("browser_evaluate", {"function": "() => 1 + 1"})


async def _snapshot(browser: Browser, site: str) -> None:
    await browser.call("browser_snapshot", {})


async def _screenshot(browser: Browser, site: str) -> None:
    await browser.call("browser_take_screenshot", {"type": "png", "scale": "css"})


SCENARIOS = (
    Scenario("navigate small", SMALL, 16, _navigate_small),
    Scenario("navigate medium", SMALL, 10, _navigate_medium),
    Scenario("see medium", SMALL, 6, _see),
    Scenario("click", SMALL, 8, _click),
    Scenario("evaluate", SMALL, 20, _evaluate),
    Scenario("snapshot small", LISTED, 20, _snapshot),
    Scenario("snapshot medium", MEDIUM, 10, _snapshot),
    Scenario("screenshot", SMALL, 10, _screenshot),
)


async def measure(plan: Plan) -> Table:
    table = Table("(f) browser: latency in ms")
    with served() as site:
        await _latencies(plan, site, table)
    return table


async def _latencies(plan: Plan, site: str, table: Table) -> None:
    results: dict[tuple[str, str], Result] = {}
    shuffled = random.Random(1)
    async with AsyncExitStack() as stack:
        names = present(ROUTES, table)
        for number in range(1, plan.browser_starts):
            for name in shuffled.sample(names, len(names)):
                async with AsyncExitStack() as once:
                    await _started(once, name, plan.folder / f"start{number}", site, results)
        routes = [await _started(stack, name, plan.folder, site, results) for name in names]
        for _ in range(max(1, plan.rounds // 2)):
            for scenario in SCENARIOS:
                shuffled.shuffle(routes)
                for browser in routes:
                    taken = results.setdefault((browser.name, scenario.name), Result())
                    await _round(browser, scenario, site, taken)
    table.rows = [
        _row(scenario, name, result, results) for (name, scenario), result in _ordered(results)
    ]
    table.targets = list(_targets(results))


async def _started(
    stack: AsyncExitStack,
    name: str,
    folder: Path,
    site: str,
    results: dict[tuple[str, str], Result],
) -> Browser:
    began = time.perf_counter()
    browser = await stack.enter_async_context(opened(name, folder / name.replace(" ", "-")))
    opened_at = time.perf_counter()
    await _navigate_small(browser, site)
    results.setdefault((name, OPEN), Result()).add(opened_at - began)
    results.setdefault((name, FIRST), Result()).add(time.perf_counter() - opened_at)
    return browser


async def _round(browser: Browser, scenario: Scenario, site: str, result: Result) -> None:
    await browser.call("browser_navigate", {"url": site + scenario.page})
    if scenario.step is _click:
        found = re.search(
            r'button "Increment" \[ref=(\w+)\]', await browser.call("browser_snapshot", {})
        )
        assert found is not None, browser.name
        browser.ref = found[1]
    with undisturbed():
        for _ in range(scenario.times):
            began = time.perf_counter()
            await scenario.step(browser, site)
            result.add(time.perf_counter() - began)


def _ordered(results: dict[tuple[str, str], Result]) -> list[tuple[tuple[str, str], Result]]:
    names = [OPEN, FIRST, *(scenario.name for scenario in SCENARIOS)]
    order = {name: number for number, name in enumerate(names)}
    routes = {name: number for number, name in enumerate(ROUTES)}
    return sorted(results.items(), key=lambda item: (order[item[0][1]], routes[item[0][0]]))


def _row(scenario: str, name: str, result: Result, results: dict[tuple[str, str], Result]) -> Row:
    bare = results.get(("playwright", scenario))
    p50 = median(result.seconds)
    return {
        "what": scenario,
        "route": name,
        "p10": quantile(result.seconds, 0.1) * 1000,
        "p50": p50 * 1000,
        "p99": quantile(result.seconds, 0.99) * 1000,
        "x Playwright": p50 / median(bare.seconds) if bare is not None else None,
        "times": len(result.seconds),
    }


FASTER = {"click": 8.0, "evaluate": 50.0}
EVALUATE = {"stdio": (2.5, 3.8), "http": (5.0, 5.6)}
"""By transport: the ms that a call may take, and the ms of the peer without a pause on the machine of that target."""
CLICK_MS = 60.0
"""The ms that a click may take with the snapshot in its result, when nothing loads."""
MORE_MS = 1.5
"""The ms that a call over stdio may take more than Playwright."""

ALONE = {
    "playwright": "Playwright",
    "sdk stdio": "Playwright behind the SDK's server",
}
NOT_SLOWER = (
    "navigate small",
    "navigate medium",
    "see medium",
    "snapshot small",
    "snapshot medium",
    "screenshot",
)


def _targets(results: dict[tuple[str, str], Result]) -> Generator[Target]:
    def p50(route: str, scenario: str) -> float | None:
        found = results.get((route, scenario))
        return None if found is None else median(found.seconds)

    for scenario in (*FASTER, *NOT_SLOWER):
        ours, peer = (results.get((f"{who} stdio", scenario)) for who in ("statehold", "peer"))
        if ours is None or peer is None:
            continue
        value, low, high = ratio(peer.seconds, ours.seconds)
        yield Target(
            f"{scenario}: times as fast as the peer",
            value,
            FASTER.get(scenario, 1.0),
            "x",
            ceiling=False,
            between=None if scenario in FASTER else (low, high),
        )
    for how, (bound, then) in EVALUATE.items():
        ours, peer = p50(f"statehold {how}", "evaluate"), p50(f"peer {how} settle 0", "evaluate")
        if ours is not None:
            yield Target(f"evaluate, statehold {how}", ours * 1000, bound, "ms")
        click = p50(f"statehold {how}", "click")
        if click is not None:
            yield Target(f"click with its snapshot, statehold {how}", click * 1000, CLICK_MS, "ms")
        if ours is not None and peer is not None:
            yield Target(
                f"evaluate, {how}: against the peer that never pauses",
                ours / peer,
                bound / then,
                "x",
            )
    ours, bare = p50("statehold stdio", "evaluate"), p50("playwright", "evaluate")
    if ours is not None and bare is not None:
        yield Target("evaluate, stdio: more than Playwright", (ours - bare) * 1000, MORE_MS, "ms")
    for scenario in ("snapshot small", "snapshot medium"):
        for route, named in ALONE.items():
            ours, alone = p50("statehold stdio", scenario), p50(route, scenario)
            if ours is not None and alone is not None:
                yield Target(f"{scenario} against {named}", ours / alone, 1.1, "x")
