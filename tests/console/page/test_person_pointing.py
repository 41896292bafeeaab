"""Clicks and touches of a person on the picture land on the same pixel of the page."""

from __future__ import annotations

from typing import Any

import pytest
from lab import Lab
from playwright.async_api import Browser, Page
from support.agent import Agent
from support.console_page import BLUE, ConsolePage, opened_console
from support.selection import matrix
from support.waiting import until

from statehold.console.app import Console
from statehold.tools.browser.devtools.world import send_command

DOT = "position:absolute;width:12px;height:12px;border:0;padding:0;background:transparent"
PAGE = f"""<!doctype html><meta name=viewport content="width=device-width">
<body style="margin:0;width:4000px;height:4000px">
<button id=dot style="{DOT};left:613px;top:377px"></button>
<script>hits = []; addEventListener("click", event => hits.push(event.target.id || event.target.tagName))</script>"""
"""A dot that is smaller than an error of the mapping would be. paint() shows it when all is in its place."""
PAINT = "document.querySelector('#dot').style.background = '#f00'"
INNER = f"""document.body.innerHTML = `<div style="width:2000px;height:3000px"></div>
  <button id=dot style="{DOT};left:150px;top:1500px"></button>`;
  addEventListener("click", event => parent.postMessage(event.target.id, "*"));
  scrollTo(77, 1450)"""
SETTLED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


async def hits(page: Page, count: int = 1) -> list[str]:
    await page.wait_for_function(f"hits.length >= {count}")
    return await page.evaluate("hits")


@pytest.mark.thorough
async def test_a_click_lands_after_resizes_of_the_console_and_of_the_page(
    eve: ConsolePage, watched: Page
) -> None:
    await eve.show(watched, PAGE)
    sizes = [(1440, 900), (701, 900), (1000, 467)]
    try:
        for count, (width, height) in enumerate(sizes, 1):
            await eve.page.set_viewport_size({"width": width, "height": height})
            await watched.evaluate("scrollBy(3, 2)")
            await watched.evaluate(SETTLED)
            await watched.evaluate(PAINT)
            await eve.page.locator("sh-screen canvas").scroll_into_view_if_needed()
            await eve.click_color()
            assert await hits(watched, count) == ["dot"] * count
        await watched.set_viewport_size({"width": 701, "height": 967})

        async def is_resized() -> bool:
            return (
                await eve.page.evaluate("document.querySelector('sh-screen canvas').width") == 701
            )

        await until(is_resized)
        await eve.click_color()
        assert await hits(watched, 4) == ["dot"] * 4
    finally:
        await watched.set_viewport_size({"width": 1280, "height": 720})
        await eve.page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.thorough
@pytest.mark.parametrize("zoom", matrix(1.5, 0.67, 2.5))
async def test_a_click_lands_with_zoom_on_both_sides(
    eve: ConsolePage, watched: Page, zoom: float
) -> None:
    await eve.show(watched, PAGE)
    # At a larger zoom the dot would be outside of the page.
    inner = min(1.5, 2 / zoom)
    await watched.evaluate(f"document.documentElement.style.zoom = {inner}; scrollTo(5, 50)")
    await watched.evaluate(SETTLED)
    await watched.evaluate(PAINT)
    # The zoom of a browser gives a smaller viewport with larger pixels.
    devtools = await eve.devtools()
    size = {"width": round(1440 / zoom), "height": round(900 / zoom)}
    metrics = {**size, "deviceScaleFactor": zoom, "mobile": False}
    await send_command(devtools, "Emulation.setDeviceMetricsOverride", metrics)
    await eve.page.locator("sh-screen canvas").scroll_into_view_if_needed()
    await eve.click_color()
    assert await hits(watched) == ["dot"]
    await send_command(devtools, "Emulation.clearDeviceMetricsOverride")
    await devtools.detach()
    await eve.page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.thorough
async def test_a_click_lands_in_a_window_of_device_scale_2(
    eve: ConsolePage, watched: Page, browser: Browser, url: str, console: Console, ada: Agent
) -> None:
    await eve.show(watched, PAGE)
    await eve.give_back()
    async with opened_console(browser, url, console, ada.session, device_scale_factor=2) as fine:
        await fine.take()
        await watched.evaluate(PAINT)
        await fine.click_color()
        assert await hits(watched) == ["dot"]
        await fine.give_back()
    await eve.take()


@pytest.mark.thorough
async def test_a_click_lands_in_a_scrolled_frame_of_another_site(
    eve: ConsolePage, watched: Page, site: Lab
) -> None:
    for address in (site.url, site.other):
        await watched.goto(f"{site.url}/counter")
        await watched.evaluate(
            """address => { hits = []; addEventListener("message", event => hits.push(event.data));
              document.body.innerHTML = '<p style="height:1200px">';
              const frame = document.createElement("iframe"); frame.src = address;
              frame.style = "margin-left:70px;border:9px solid blue"; document.body.append(frame); }""",
            f"{address}/counter",
        )
        frame = watched.frames[1]
        await frame.wait_for_load_state()
        await frame.evaluate(f"() => {{ {INNER} }}")
        await watched.evaluate("scrollTo(0, 900)")
        await watched.evaluate(SETTLED)
        await frame.evaluate(PAINT)
        await eve.click_color()
        assert await hits(watched) == ["dot"], address


@pytest.mark.thorough
async def test_the_wheel_scrolls_and_a_drag_draws(eve: ConsolePage, watched: Page) -> None:
    await eve.show(watched, PAGE)
    await watched.evaluate(PAINT)
    x, y = await eve.find()
    await eve.page.mouse.move(x, y)
    for _ in range(5):
        await eve.page.mouse.wheel(0, 20)
    await watched.wait_for_function("scrollY === 100")
    await watched.evaluate(
        """() => { lines = []; for (const kind of ["pointerdown", "pointermove", "pointerup", "dblclick", "contextmenu"])
             addEventListener(kind, event => lines.push(kind + event.buttons)); }"""
    )
    # A press on a picture from before the page scrolled would be refused.

    async def is_scrolled() -> bool:
        return await eve.page.evaluate(
            "document.querySelector('sh-screen sh-picture').about.scroll_y === 100"
        )

    await until(is_scrolled)
    await eve.page.mouse.down()
    await eve.page.mouse.move(x + 40, y + 30, steps=4)
    # The pointer may leave the picture.
    await eve.page.mouse.move(3, 3)
    await eve.page.mouse.up()
    await watched.wait_for_function("lines.includes('pointerup0')")
    lines = await watched.evaluate("lines")
    assert lines[0] == "pointermove0" or lines[0] == "pointerdown1"
    assert "pointermove1" in lines
    await eve.page.mouse.dblclick(x, y)
    await eve.page.mouse.click(x, y, button="right")
    await watched.wait_for_function(
        "lines.includes('dblclick0') && lines.some(l => l.startsWith('contextmenu'))"
    )


@pytest.mark.thorough
async def test_things_of_the_page_are_dragged_and_dropped(eve: ConsolePage, watched: Page) -> None:
    await eve.show(
        watched,
        """<body style="margin:0"><div id=a draggable=true style="width:60px;height:60px;background:red">a</div>
        <div id=b style="width:200px;height:200px;background:blue"></div><script>log = [];
          a.ondragstart = event => event.dataTransfer.setData("text/plain", "carried");
          b.ondragover = event => event.preventDefault();
          b.ondrop = event => { event.preventDefault(); log.push(event.dataTransfer.getData("text/plain")); };
          b.onclick = () => log.push("clicked");
        </script>""",
    )
    start, end = await eve.find(), await eve.find(BLUE)
    await eve.page.mouse.move(*start)
    await eve.page.mouse.down()
    await eve.page.mouse.move(*end, steps=5)
    await eve.page.mouse.up()
    await watched.wait_for_function("log.includes('carried')")
    await eve.page.mouse.click(*end)
    await watched.wait_for_function("log.includes('clicked')")


PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 3,
}
FOCUS = "document.activeElement.className"


@pytest.mark.thorough
async def test_a_phone_taps_scrolls_and_gets_its_keyboard_in_fields(
    eve: ConsolePage, watched: Page, browser: Browser, url: str, console: Console, ada: Agent
) -> None:
    await eve.show(
        watched,
        f"""{PAGE}<input id=field style="position:absolute;left:40px;top:40px;width:300px;height:60px;background:#00f">
        <script>taps = []; addEventListener("touchstart", event => taps.push(event.touches.length))</script>""",
    )
    await eve.give_back()
    async with opened_console(browser, url, console, ada.session, **PHONE) as phone:
        page = phone.page
        await phone.take()
        await watched.evaluate(PAINT)
        await page.touchscreen.tap(*await phone.find())
        assert await hits(watched) == ["dot"]
        assert await watched.evaluate("taps") == [1]

        async def has_no_keyboard() -> bool:
            return await page.evaluate(FOCUS) != "keys"

        await until(has_no_keyboard)
        field = await phone.find(BLUE)
        await page.evaluate(
            """() => { seen = []; const field = document.querySelector("textarea.keys");
              field.addEventListener("focus", () => seen.push(navigator.userActivation.isActive)); }"""
        )
        await page.touchscreen.tap(*field)
        assert await page.evaluate(FOCUS) == "keys"
        await watched.wait_for_function("document.activeElement.id === 'field'")
        assert await page.evaluate("seen") == [True]
        await page.keyboard.insert_text("hello")
        await watched.wait_for_function("field.value === 'hello'")
        assert await page.evaluate(FOCUS) == "keys"

        devtools = await phone.devtools()
        x, y = await phone.find()

        async def touch(kind: str, *points: tuple[float, float]) -> None:
            places = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
            await send_command(
                devtools,
                "Input.dispatchTouchEvent",
                {"type": kind, "touchPoints": places},
            )

        await touch("touchStart", (x, y))
        for step in range(1, 9):
            await touch("touchMove", (x, y - 8 * step))
        await touch("touchEnd")
        await watched.wait_for_function("scrollY > 50")
        assert await page.evaluate("scrollY") == 0
        await phone.give_back()
        assert phone.errors == []
    await eve.take()
