"""The live picture from paint to paint: from a page that paints numbers to the canvas of a viewer in another Chromium.

The floor is a screencast of DevTools by Playwright alone, drawn in a canvas of the same viewer, in turns.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from playwright.async_api import Browser, Page, async_playwright

from statehold.tools.browser.devtools.world import send_command

from ..browser.bare import shell
from ..browser.painting import PATH, SAMPLE
from ..browser.site import served
from ..plan import Plan
from ..processes import family
from ..report import Row, Target
from ..samples import median, quantile
from .cost import read_clocks, seconds_since
from .peer import PICTURE, dashboard, installed
from .serving import person_browser, serving

BOUND_MS: Final = 150.0
CONSOLE, BARE, PEER = "console", "bare screencast", "playwright-cli show"
RATES: Final = (3, 10, 60)
"""Paints of the watched page in a second."""
SETTLE_SECONDS: Final = 1.0
PAINTED: Final = "() => window.painted"
SCREENCAST: Final[dict[str, Any]] = {
    "format": "jpeg",
    "quality": 60,
    "maxWidth": 1920,
    "maxHeight": 1920,
    "maxFramesInFlight": 1,
    "sendLastFrame": True,
}
DRAW: Final = """async data => {
    const bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], {type: "image/jpeg"}));
    const canvas = document.querySelector("canvas");
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.getContext("2d").drawImage(image, 0, 0);
}"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A page and its viewer."""

    viewer: Page
    selector: str
    """Finds the picture in the viewer."""
    go: Callable[[str], Awaitable[object]]
    """Opens an address in the watched page."""
    painted: Callable[[], Awaitable[dict[str, float]]]
    """Returns the time of each number that the page painted."""
    pids: Callable[[], list[int]] | None = None
    """Returns the processes that serve the page and its pictures, without those of the viewer."""


@dataclass(slots=True)
class Waits:
    """The milliseconds from paint to paint, and the cores that the side of the server took."""

    milliseconds: list[float] = field(default_factory=list[float])
    cores: list[float] = field(default_factory=list[float])


Open = Callable[[Plan, Browser, str], AbstractAsyncContextManager[Watched]]
"""Opens an address in a page and watches it with a page of another browser."""
Found = dict[tuple[int, str], Waits]
"""By paints a second, and by way."""


async def measure(plan: Plan) -> tuple[list[Row], list[Target], list[str]]:
    """Return a row per rate and way, the targets, and notes."""
    found: Found = {}
    ways: dict[str, Open] = {CONSOLE: _console, BARE: _bare}
    notes: list[str] = []
    if installed() is None:
        notes.append("left out: playwright-cli is not installed (npm @playwright/cli)")
    else:
        ways[PEER] = _peer
    with served() as site:
        async with person_browser() as person:
            for _ in range(plan.watch_rounds):
                for way, opened in ways.items():
                    async with opened(plan, person, f"{site}{PATH}") as watched:
                        for rate in RATES:
                            await watched.go(f"{site}{PATH}?hz={rate}")
                            waits = found.setdefault((rate, way), Waits())
                            await _round(watched, plan.watch_seconds, waits)
    empty = [key for key, waits in found.items() if not waits.milliseconds]
    notes += [f"{way} at {rate} paints/s: its viewer saw no number" for rate, way in empty]
    rows = [_row(*key, found) for key in sorted(found) if key not in empty]
    return rows, [_target(rate, found) for rate in RATES if (rate, CONSOLE) not in empty], notes


def _target(rate: int, found: Found) -> Target:
    p50 = median(found[rate, CONSOLE].milliseconds)
    return Target(f"console: paint to paint, page of {rate} paints/s, p50", p50, BOUND_MS, "ms")


async def _round(watched: Watched, seconds: float, waits: Waits) -> None:
    """Add the milliseconds from paint to paint of the numbers that the viewer saw."""
    viewer = watched.viewer
    await anyio.sleep(SETTLE_SECONDS)
    await viewer.evaluate(SAMPLE, watched.selector)
    pids = [] if watched.pids is None else watched.pids()
    before = read_clocks(pids)
    await anyio.sleep(seconds)
    used = seconds_since(before)
    seen: dict[str, float] = await viewer.evaluate(
        "() => { cancelAnimationFrame(window.sampling); return window.seen; }"
    )
    painted = await watched.painted()
    # The first number stood there before the sampling began.
    times = sorted((seen_at, number) for number, seen_at in seen.items())[1:]
    waits.milliseconds += [
        seen_at - painted[number] for seen_at, number in times if number in painted
    ]
    if pids:
        waits.cores.append(used / seconds)


def _row(rate: int, way: str, found: Found) -> Row:
    waits = found[rate, way]
    values, floor = waits.milliseconds, found[rate, BARE].milliseconds
    return {
        "paints/s": rate,
        "way": way,
        "p10": quantile(values, 0.1),
        "p50": median(values),
        "p95": quantile(values, 0.95),
        "x bare p50": median(values) / median(floor) if floor else None,
        "cores": median(waits.cores) if waits.cores else None,
        "pictures": len(values),
    }


@asynccontextmanager
async def _console(plan: Plan, person: Browser, _: str) -> AsyncGenerator[Watched]:
    folder = plan.folder / "console-latency"
    shutil.rmtree(folder, ignore_errors=True)
    async with serving(folder) as server:
        created = await server.agent.call("session_create", {"name": "watched"})
        session = {"session_id": created["session_id"]}

        async def go(url: str) -> object:
            return await server.agent.call("browser_navigate", {**session, "url": url})

        async def ask() -> dict[str, float]:
            answer = await server.agent.call("browser_evaluate", {**session, "function": PAINTED})
            return _numbers(answer)

        await go("about:blank")
        page = await server.open_console(person, f"s/{created['session_id']}")
        pids = lambda: [process.pid for process in family(server.pid, server.data)]  # noqa: E731
        yield Watched(page, "sh-screen canvas", go, ask, pids)
        await page.context.close()


@asynccontextmanager
async def _bare(_: Plan, person: Browser, __: str) -> AsyncGenerator[Watched]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shell(), chromium_sandbox=False)
        page = await (await browser.new_context(viewport={"width": 1280, "height": 720})).new_page()
        viewer = await person.new_page()
        await viewer.set_content("<canvas width=1280 height=720></canvas>")
        devtools = await page.context.new_cdp_session(page)
        send, receive = anyio.create_memory_object_stream[dict[str, Any]](10)
        devtools.on("Page.screencastFrame", send.send_nowait)
        await send_command(devtools, "Page.startScreencast", SCREENCAST)

        async def show() -> None:
            async for frame in receive:
                acknowledged = {"sessionId": frame["sessionId"]}
                await send_command(devtools, "Page.screencastFrameAck", acknowledged)
                await viewer.evaluate(DRAW, frame["data"])

        async def ask() -> dict[str, float]:
            return await page.evaluate(PAINTED)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(show)
            yield Watched(viewer, "canvas", page.goto, ask)
            tasks.cancel_scope.cancel()
        await viewer.close()
        await browser.close()


@asynccontextmanager
async def _peer(plan: Plan, person: Browser, url: str) -> AsyncGenerator[Watched]:
    async with dashboard(plan.folder / "console-peer", person, url) as peer:
        yield Watched(
            *(peer.viewer, PICTURE, peer.go, lambda: peer.painted(PAINTED)), lambda: peer.pids
        )


def _numbers(answer: dict[str, Any]) -> dict[str, float]:
    """Read the JSON object in the text of an answer."""
    text = "\n".join(block["text"] for block in answer["content"] if block["type"] == "text")
    return json.loads(text[text.index("{") : text.rindex("}") + 1])
