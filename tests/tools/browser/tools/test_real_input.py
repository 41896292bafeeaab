"""Input as a person gives it: pages get trusted events, in frames of other sites too, and taps on a touch screen."""

from __future__ import annotations

import json

import pytest
from support.browsing import Browse, opened, section
from support.selection import matrix

from statehold.tools.browser.service import BrowserService

FRAME = """<body style="margin: 0"><input><div id=box style="height: 60px">Box</div>
<div style="height: 3000px"></div>"""
LISTEN = """kinds => {
  window.log = {};
  for (const kind of kinds) addEventListener(kind, e => { log[kind] = e.isTrusted }, true);
}"""
KINDS = ["mouseover", "mousedown", "mouseup", "click", "keydown", "input", "wheel", "scroll"]
APPLE = """<p id=a draggable=true
  ondragstart="event.dataTransfer.setData('text', 'apple')">Apple</p>"""
BASKET = """<div id=b ondragover="event.preventDefault()" style="height: 40px"
  ondrop="event.preventDefault(); this.title = event.dataTransfer.getData('text') + event.isTrusted">Basket</div>"""
FAR = "<div style='height: 2000px'></div>"


async def show_frame(browse: Browse, lab: str, body: str, *, host: str = "127.0.0.1") -> str:
    """Show a page with a frame far below, and return the selector of the frame's content."""
    await browse.text("navigate", url=f"{lab}/frame")
    source = lab.replace("127.0.0.1", host) + "/frame"
    space = "<div style='height: 900px'></div>"
    await browse.value(
        f"() => {{ document.body.innerHTML = {json.dumps(f'{space}<iframe src={source}></iframe>')} }}"
    )
    frame = browse.page.frames[1]
    await frame.wait_for_load_state()
    await frame.evaluate("html => { document.body.outerHTML = html }", body)
    return "iframe >> internal:control=enter-frame >> "


@pytest.mark.parametrize("host", matrix("127.0.0.2", "127.0.0.1"))
async def test_pages_and_frames_get_trusted_events(browse: Browse, lab: str, host: str) -> None:
    frame = await show_frame(browse, lab, FRAME, host=host)
    inner = browse.page.frames[1]
    await inner.evaluate(LISTEN, KINDS)
    await browse.text("hover", target=f"{frame}#box")
    await browse.text("click", target=f"{frame}#box")
    await browse.text("type", target=f"{frame}input", text="word")
    await browse.text("press_key", key="x")
    await browse.text("hover", target=f"{frame}#box")
    await browse.text("mouse_wheel", deltaY=300)
    await inner.wait_for_function("() => scrollY > 0 && log.scroll")
    assert await inner.evaluate("log") == dict.fromkeys(KINDS, True)
    assert await inner.evaluate("document.querySelector('input').value") == "wordx"
    assert await browse.value("() => document.hasFocus()")


@pytest.mark.thorough
async def test_a_drag_reaches_what_is_out_of_view(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(f"() => {{ document.body.innerHTML = {json.dumps(APPLE + FAR + BASKET)} }}")
    text = await browse.text("drag", startTarget="#a", endTarget="#b")
    assert "page.locator('#a').drag_to(page.locator('#b'))" in text
    assert await browse.value("() => b.title") == "appletrue"


@pytest.mark.thorough
@pytest.mark.parametrize("into_frame", [True, False])
async def test_a_drag_crosses_the_border_of_a_frame(
    browse: Browse, lab: str, into_frame: bool
) -> None:
    inside, outside = (BASKET, APPLE) if into_frame else (APPLE, BASKET)
    frame = await show_frame(browse, lab, f"<body>{inside}")
    await browse.value(
        f"() => document.body.insertAdjacentHTML('afterbegin', {json.dumps(outside)})"
    )
    start, end = ("#a", f"{frame}#b") if into_frame else (f"{frame}#a", "#b")
    await browse.text("drag", startTarget=start, endTarget=end)
    target = browse.page.frames[1 if into_frame else 0]
    assert await target.evaluate("b.title") == "appletrue"


@pytest.mark.thorough
async def test_a_slider_of_another_sites_frame_is_dragged_by_the_mouse(
    browse: Browse, lab: str
) -> None:
    body = "<body><p id=a>Knob</p><p id=b>Goal</p>"
    frame = await show_frame(browse, lab, body, host="127.0.0.2")
    inner = browse.page.frames[1]
    await inner.evaluate(LISTEN, ["mousedown", "mousemove", "mouseup"])
    await browse.text("drag", startTarget=f"{frame}#a", endTarget=f"{frame}#b")
    assert await inner.evaluate("log") == {"mousedown": True, "mousemove": True, "mouseup": True}


async def test_a_click_is_a_tap_where_pages_have_a_touch_screen(
    service: BrowserService, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["touchstart", "touchend", "click"]
    monkeypatch.setattr(service, "config", service.config.model_copy(update={"device": "Pixel 7"}))
    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/counter")
        await browse.page.evaluate(LISTEN, kinds)
        text = await browse.text("click", target="text=Increment")
        assert section(text, "Ran Playwright code").endswith(".tap()\n```")
        assert await browse.value("() => log") == dict.fromkeys(kinds, True)
        await browse.page.evaluate(LISTEN, kinds)
        assert "touchscreen.tap(5, 5)" in await browse.text("mouse_click_xy", x=5, y=5)
        assert await browse.value("() => log.touchend")
        text = await browse.text("click", target="text=Increment", doubleClick=True)
        assert ".dblclick()" in text
