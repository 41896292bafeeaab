"""(l) storage: pausing and resuming a browser context with our serialiser, and with Playwright's `storage_state`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from statehold.tools.browser.snapshot.capture import capture
from statehold.tools.browser.snapshot.restore import restore_context
from statehold.tools.browser.snapshot.saved_storage import OriginStorage

from ..plan import Plan
from ..report import Table, Target
from ..samples import median, quantile, undisturbed
from .bare import shell
from .site import served

PAGE = "/counter"
STORED = 5
"""The number of origins that store something."""
TABS = 3
BOUNDS = {"pause": 150.0, "resume": 350.0}
"""Upper bounds of the median in ms."""
KEEP = """() => new Promise(done => {
  localStorage.setItem("who", "ada");
  const opening = indexedDB.open("cart", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("items").put({price: 5}, "tea");
  opening.onsuccess = () => { opening.result.close(); done(); };
})"""

Cycle = Callable[[Browser, str, int], Awaitable[tuple[float, float]]]


async def measure(plan: Plan) -> Table:
    table = Table(f"(l) storage: ms to pause and to resume {TABS} tabs and {STORED} stored origins")
    executable = shell()
    if executable is None:
        table.notes.append("left out: chromium-headless-shell is not installed")
        return table
    ways: dict[str, Cycle] = {"statehold": _ours, "storage_state": _playwright}
    with served() as site:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=executable, args=["--no-sandbox"]
            )
            # Another context keeps the processes of the browser running, as on a server in use.
            await browser.new_page()
            for shown in (TABS, 0):
                taken = {way: [await cycle(browser, site, shown)] for way, cycle in ways.items()}
                for _ in range(plan.rounds):
                    for way, cycle in ways.items():
                        taken[way].append(await cycle(browser, site, shown))
                for way, times in taken.items():
                    for what, values in zip(BOUNDS, zip(*times[1:], strict=True), strict=True):
                        _add(table, what, way, shown, list(values))
            await browser.close()
    return table


def _add(table: Table, what: str, way: str, shown: int, values: list[float]) -> None:
    p50, p95 = median(values) * 1000, quantile(values, 0.95) * 1000
    table.rows.append(
        {"what": what, "way": way, "stored origins with a tab": shown, "p50": p50, "p95": p95}
    )
    if way == "statehold":
        table.targets.append(Target(f"{what}, {shown} with a tab", p50, BOUNDS[what], "ms"))


def _origin(site: str, number: int) -> str:
    return site.replace("127.0.0.1", f"shop{number}.localhost")


async def _used(context: BrowserContext, site: str, shown: int) -> list[Page]:
    """Store something for each origin, and return the tabs, `shown` of which show one of these origins."""
    page = await context.new_page()
    for number in range(STORED):
        await page.goto(_origin(site, number) + PAGE)
        await page.evaluate(KEEP)
    pages = [page, *[await context.new_page() for _ in range(TABS - 1)]]
    for number, page in enumerate(pages):
        await page.goto(_origin(site, number + (0 if shown else STORED)) + PAGE)
    return pages


async def _ours(browser: Browser, site: str, shown: int) -> tuple[float, float]:
    context = await browser.new_context()
    origins = OriginStorage(context)
    pages = await _used(context, site, shown)
    with undisturbed():
        began = time.perf_counter()
        kept = await capture(context, pages, 0, light=False, seconds=15, origins=origins)
        await context.close()
        paused = time.perf_counter()
        found = await restore_context(browser, kept, context_options={})
        resumed = time.perf_counter()
    assert len(kept.origins) == STORED, kept.origins.keys()
    await found.context.close()
    return paused - began, resumed - paused


async def _playwright(browser: Browser, site: str, shown: int) -> tuple[float, float]:
    context = await browser.new_context()
    pages = await _used(context, site, shown)
    with undisturbed():
        began = time.perf_counter()
        state = await context.storage_state(indexed_db=True, opfs=True)
        url = pages[0].url
        await context.close()
        paused = time.perf_counter()
        context = await browser.new_context(storage_state=state)
        await (await context.new_page()).goto(url)
        resumed = time.perf_counter()
    assert len(state.get("origins", [])) == STORED, state
    await context.close()
    return paused - began, resumed - paused
