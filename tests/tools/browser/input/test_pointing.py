"""Clicks of a person land on the pixel that they saw; drags, wheel and touch."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.async_api import Page
from support.browsing import Browse, opened, running
from support.pixels import Pixels
from support.selection import matrix
from support.taking_over import Person, click, press

from statehold.tools.browser.devtools.world import send_command
from statehold.tools.browser.screencast.screencast import ScreenViewer

RED = (255, 0, 0)
DOT = "position:absolute;width:12px;height:12px;border:0;padding:0;background:#f00"
PAGE = f"""<meta name=viewport content="width=device-width,minimum-scale=1">
<body style="margin:0;width:4000px;height:4000px">
<button id=dot style="{DOT};left:613px;top:377px"></button>
<script>hits = []; addEventListener("click", event => hits.push(event.target.id || event.target.tagName))</script>"""
"""A red dot that is smaller than an error of the mapping would be."""
INNER = f"""<body style='margin:0;width:3000px;height:3000px'>
<button id=inner style='{DOT};left:1500px;top:1700px'></button>
<script>addEventListener('click', event => parent.postMessage(event.target.id, '*'))</script>"""
OUTER = f"""<body style="margin:0;height:3000px"><p style="height:600px"></p>
<iframe style="margin-left:70px;border:9px solid blue;width:500px;height:300px" srcdoc="{INNER}"></iframe>
<script>hits = []; addEventListener("message", event => hits.push(event.data))</script>"""


@asynccontextmanager
async def watched(person: Person, html: str) -> AsyncGenerator[tuple[Page, ScreenViewer]]:
    page = (await person.connection.session.current()).page
    await page.set_content(html)
    async with person.connection.screencast.watch() as viewer:
        yield page, viewer


async def hits(page: Page) -> list[str]:
    return await page.evaluate("hits")


async def test_a_click_lands_on_the_dot_after_resizes(person: Person, pixels: Pixels) -> None:
    async with watched(person, PAGE) as (page, viewer):
        for count, (width, height) in enumerate(((1280, 720), (701, 467), (1999, 2500)), 1):
            await page.set_viewport_size({"width": width, "height": height})
            with anyio.fail_after(10):
                async for update in viewer:
                    if update.frame is not None and update.frame.width == width:
                        break
            await page.evaluate("scrollBy(3, 2)")
            await person.click_color(viewer, RED, pixels)
            assert await hits(page) == ["dot"] * count


@pytest.mark.parametrize("zoom", matrix(0.5, 1.9))
async def test_a_click_lands_on_the_dot_with_css_zoom(
    person: Person, pixels: Pixels, zoom: float
) -> None:
    async with watched(person, PAGE) as (page, viewer):
        await page.evaluate(f"document.documentElement.style.zoom = {zoom}; scrollTo(0, 50)")
        await page.evaluate("() => new Promise(requestAnimationFrame)")
        await person.click_color(viewer, RED, pixels)
        assert await hits(page) == ["dot"]


async def test_a_click_lands_on_the_dot_after_a_pinch(person: Person, pixels: Pixels) -> None:
    async with watched(person, PAGE) as (page, viewer):
        devtools = await page.context.new_cdp_session(page)
        await send_command(devtools, "Emulation.setPageScaleFactor", {"pageScaleFactor": 1.7})
        place = {"type": "mouse", "action": "wheel", "x": 100, "y": 100}
        await person.act({**place, "delta_x": 120, "delta_y": 80})
        with anyio.fail_after(10):
            async for update in viewer:
                if update.frame is not None and update.frame.page_scale > 1:
                    break
        await page.evaluate("dot.style.background = '#fe0000'")
        frame = await person.click_color(viewer, RED, pixels)
        assert await hits(page) == ["dot"]
        assert frame.page_scale == pytest.approx(1.7)


async def test_a_click_lands_in_a_frame_of_another_site(
    person: Person, pixels: Pixels, lab: str
) -> None:
    other = lab.replace("127.0.0.1", "localhost")
    async with watched(person, OUTER.partition("<iframe")[0]) as (page, viewer):
        await page.goto(f"{lab}/counter")
        await page.evaluate(
            """address => { document.body.innerHTML = '<p style="height:1200px">';
              const frame = document.createElement("iframe"); frame.src = address; document.body.append(frame); }""",
            f"{other}/counter",
        )
        frame = page.frames[1]
        await frame.wait_for_load_state()
        await frame.evaluate(INNER_OF_OTHER, DOT)
        await page.evaluate("scrollTo(0, 900)")
        await frame.evaluate("scrollTo(77, 1450)")
        await person.click_color(viewer, RED, pixels)
        await frame.wait_for_function("globalThis.hit === 'inner'")


INNER_OF_OTHER = """style => {
  document.body.innerHTML = `<div style="width:2000px;height:3000px"></div>
    <button id=inner style="${style};left:150px;top:1500px">`;
  addEventListener("click", event => globalThis.hit = event.target.id);
}"""


@pytest.mark.parametrize("settings", matrix({"device_scale_factor": 2}, {"device": "iPhone 15"}))
async def test_a_click_lands_on_the_dot_with_a_device_scale(
    data: Path, shell: str, pixels: Pixels, settings: dict[str, Any]
) -> None:
    async with (
        running(data, shell, **settings) as service,
        opened(service) as browse,
    ):
        await browse.connection.session.current()
        await browse.connection.begin_human_control()
        person = Person(browse.connection)
        async with watched(person, PAGE) as (page, viewer):
            await page.evaluate("scrollTo(500, 300)")
            frame = await person.click_color(viewer, RED, pixels)
            assert await page.evaluate("devicePixelRatio") == frame.device_scale
            assert frame.device_scale >= 2
            await page.wait_for_function("hits.length")
            assert await hits(page) == ["dot"]


@pytest.mark.parametrize("kind", matrix("mouse", "touch"))
@pytest.mark.parametrize("way", matrix("script", "wheel"))
async def test_a_press_on_an_old_picture_hits_nothing_after_the_page_scrolled(
    person: Person, way: str, kind: str
) -> None:
    async with watched(person, PAGE) as (page, _):
        await page.evaluate(
            "for (const k of ['mousedown', 'mouseup']) addEventListener(k, () => hits.push(k))"
        )
        if way == "script":
            await page.evaluate("scrollBy(0, 60)")
        else:
            wheel = {"type": "mouse", "action": "wheel", "x": 9, "y": 9, "delta_y": 60}
            await person.act(wheel)
            await page.wait_for_function("scrollY === 60")
        seen = {"scroll_x": 0, "scroll_y": 0}
        events: list[dict[str, Any]] = click(619, 383, **seen)
        if kind == "touch":
            finger = {"type": "touch", "action": "start", "points": [{"id": 0, "x": 619, "y": 383}]}
            events = [{**finger, **seen}, {"type": "touch", "action": "end"}]
        outcome = await person.act(*events)
        assert len(outcome.refusals) == 1
        assert await hits(page) == []
        await person.act(*click(619, 323, scroll_x=0, scroll_y=60))
        assert await hits(page) == ["mousedown", "mouseup", "dot"]


async def test_the_wheel_scrolls_what_is_under_it(person: Person) -> None:
    async with watched(person, OUTER) as (page, _):
        await person.act(
            {"type": "mouse", "action": "wheel", "x": 5, "y": 5, "delta_x": 0, "delta_y": 400}
        )
        await page.wait_for_function("scrollY === 400")
        await person.act(
            {"type": "mouse", "action": "wheel", "x": 200, "y": 300, "delta_x": 30, "delta_y": 60}
        )
        await page.frames[1].wait_for_function("scrollY === 60 && scrollX === 30")


DRAGS = """<body style="margin:0"><div id=a draggable=true style="width:60px;height:60px;background:red">a</div>
<div id=b style="width:200px;height:200px;background:blue"></div>
<script>
  log = [];
  a.ondragstart = event => event.dataTransfer.setData("text/plain", "carried");
  a.ondragend = () => log.push("end");
  b.ondragover = event => event.preventDefault();
  b.ondrop = event => { event.preventDefault(); log.push(event.dataTransfer.getData("text/plain")); };
</script>"""


async def test_a_drag_drops_its_data_and_the_mouse_works_after_it(person: Person) -> None:
    async with watched(person, DRAGS) as (page, _):
        left = {"type": "mouse", "button": "left"}
        path = [(25, 25), (40, 60), (70, 120), (90, 160)]
        await person.act(
            {**left, "action": "down", "x": 20, "y": 20},
            *({"type": "mouse", "action": "move", "x": x, "y": y} for x, y in path),
        )
        await person.act({**left, "action": "up", "x": 90, "y": 160})
        await page.wait_for_function("log.includes('carried')")
        await page.evaluate("b.onclick = () => log.push('clicked')")
        await person.click(90, 160)
        await page.wait_for_function("log.includes('clicked')")


async def test_escape_cancels_a_drag(person: Person) -> None:
    async with watched(person, DRAGS) as (page, _):
        left = {"type": "mouse", "button": "left"}
        await person.act({**left, "action": "down", "x": 20, "y": 20})
        for y in (30, 80, 150):
            await person.act({"type": "mouse", "action": "move", "x": 60, "y": y})
        await person.act(*press("Escape"))
        await person.act({**left, "action": "up", "x": 60, "y": 150})
        assert "carried" not in await page.evaluate("log")


async def test_a_slider_follows_the_mouse_until_control_ends(browse: Browse) -> None:
    await browse.connection.session.current()
    await browse.connection.begin_human_control()
    person = Person(browse.connection)
    async with watched(person, PAGE) as (page, _):
        await page.evaluate(
            """() => { log = []; for (const kind of ["mousedown", "mouseup", "keydown", "keyup"])
                 addEventListener(kind, event => log.push(kind + (event.key ?? ""))); }"""
        )
        await person.act(
            {"type": "mouse", "action": "down", "button": "left", "x": 50, "y": 50},
            {"type": "key", "action": "down", "key": "Shift", "code": "ShiftLeft"},
        )
        await browse.connection.end_human_control()
        assert await page.evaluate("log") == ["mousedown", "keydownShift", "mouseup", "keyupShift"]


async def test_touch_reaches_the_page(person: Person) -> None:
    async with watched(person, PAGE) as (page, _):
        await page.evaluate(
            """() => { log = []; for (const kind of ["touchstart", "touchmove", "touchend"])
                 addEventListener(kind, event => log.push(kind + event.touches.length)); }"""
        )
        one, two = {"id": 0, "x": 10, "y": 10}, {"id": 1, "x": 90, "y": 90}
        touch = {"type": "touch"}
        await person.act(
            {**touch, "action": "start", "points": [one]},
            {**touch, "action": "start", "points": [one, two]},
            {**touch, "action": "move", "points": [one, {**two, "x": 120}]},
            {**touch, "action": "end", "points": [one]},
            {**touch, "action": "end", "points": []},
        )
        await page.wait_for_function("log.includes('touchend0')")
        log = await page.evaluate("log")
        assert log[:2] == ["touchstart1", "touchstart2"]
        assert "touchmove2" in log
        assert log[-2:] == ["touchend1", "touchend0"]


async def test_a_double_click_and_the_right_button(person: Person) -> None:
    async with watched(person, PAGE) as (page, _):
        await page.evaluate(
            "() => { log = []; ondblclick = () => log.push('double'); oncontextmenu = () => log.push('menu'); }"
        )
        await person.click(50, 50)
        await person.click(50, 50, clicks=2)
        await person.click(50, 50, button="right")
        assert await page.evaluate("log") == ["double", "menu"]
