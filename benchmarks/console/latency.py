"""The live picture from paint to paint: from a page that paints numbers to the canvas of a viewer in another Chromium.

The floor is a screencast of DevTools by Playwright alone, drawn in a canvas of the same viewer, in turns.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from playwright.async_api import Browser, Page, async_playwright

from statehold.tools.browser.devtools.world import send_command

from ..browser.bare import shell
from ..browser.site import served
from ..plan import Plan
from ..report import Row, Target
from ..samples import median, quantile
from .painting import PATH, SAMPLE
from .serving import person_browser, serving

BOUND_MS: Final = 150.0
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

Ask = Callable[[], Awaitable[dict[str, float]]]
"""Returns the time of each number that the watched page painted."""
Go = Callable[[str], Awaitable[object]]
"""Opens an address in the watched page."""


async def measure(plan: Plan) -> tuple[list[Row], list[Target]]:
    """Return a row per rate and way, and the targets."""
    waits: dict[tuple[int, str], list[float]] = {}
    with served() as site:
        async with person_browser() as person:
            for _ in range(plan.watch_rounds):
                for way, opened in (("console", _console), ("bare screencast", _bare)):
                    async with opened(plan, person) as (viewer, selector, go, ask):
                        for rate in RATES:
                            await go(f"{site}{PATH}?hz={rate}")
                            found = await _round(viewer, selector, ask, plan.watch_seconds)
                            waits.setdefault((rate, way), []).extend(found)
    rows = [_row(rate, way, waits) for rate, way in sorted(waits)]
    return rows, [
        Target(
            f"console: paint to paint, page of {rate} paints/s, p50",
            median(waits[rate, "console"]),
            BOUND_MS,
            "ms",
        )
        for rate in RATES
    ]


async def _round(viewer: Page, selector: str, ask: Ask, seconds: float) -> list[float]:
    """Return the milliseconds from paint to paint of the numbers that the viewer saw."""
    await anyio.sleep(SETTLE_SECONDS)
    await viewer.evaluate(SAMPLE, selector)
    await anyio.sleep(seconds)
    seen: dict[str, float] = await viewer.evaluate(
        "() => { cancelAnimationFrame(window.sampling); return window.seen; }"
    )
    painted = await ask()
    # The first number stood there before the sampling began.
    times = sorted((seen_at, number) for number, seen_at in seen.items())[1:]
    return [seen_at - painted[number] for seen_at, number in times if number in painted]


def _row(rate: int, way: str, waits: dict[tuple[int, str], list[float]]) -> Row:
    values = waits[rate, way]
    floor = median(waits[rate, "bare screencast"])
    return {
        "paints/s": rate,
        "way": way,
        "p10": quantile(values, 0.1),
        "p50": median(values),
        "p95": quantile(values, 0.95),
        "x bare p50": median(values) / floor,
        "pictures": len(values),
    }


@asynccontextmanager
async def _console(plan: Plan, person: Browser) -> AsyncGenerator[tuple[Page, str, Go, Ask]]:
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
        yield page, "sh-screen canvas", go, ask
        await page.context.close()


@asynccontextmanager
async def _bare(plan: Plan, person: Browser) -> AsyncGenerator[tuple[Page, str, Go, Ask]]:
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
            yield viewer, "canvas", page.goto, ask
            tasks.cancel_scope.cancel()
        await viewer.close()
        await browser.close()


def _numbers(answer: dict[str, Any]) -> dict[str, float]:
    """Read the JSON object in the text of an answer."""
    text = "\n".join(block["text"] for block in answer["content"] if block["type"] == "text")
    return json.loads(text[text.index("{") : text.rindex("}") + 1])
