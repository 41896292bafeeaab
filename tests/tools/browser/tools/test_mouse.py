"""The mouse by coordinates."""

from __future__ import annotations

import pytest
from support.browsing import Browse, section

from statehold.sessions.errors import InvalidArgument

pytestmark = pytest.mark.peer


async def said(browse: Browse) -> str:
    return await browse.value("() => document.querySelector('[role=status], output').textContent")


async def test_a_click_at_a_point_answers_with_what_it_changed(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/pad")
    text = await browse.text("mouse_click_xy", x=100, y=300)
    assert "await page.mouse.click(100, 300)" in text
    assert "click 100,300 0" in section(text, "Snapshot")


async def test_a_click_at_a_point_has_a_button_a_count_and_a_delay(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/pad")
    text = await browse.text("mouse_click_xy", x=100, y=300, button="right", clickCount=2, delay=5)
    assert "click(100, 300, button='right', click_count=2, delay=5.0)" in text
    assert (await said(browse)).count("contextmenu") == 2


async def test_the_mouse_moves_presses_and_releases(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/pad")
    await browse.text("mouse_move_xy", x=150, y=320)
    await browse.text("mouse_down")
    text = await browse.text("mouse_up", button="left")
    assert "await page.mouse.up(button='left')" in text
    assert "mousedown 150,320 0\nmouseup 150,320 0" in await said(browse)


async def test_the_mouse_drags(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/pad")
    text = await browse.text(
        "mouse_drag_xy", element="the pad", startX=60, startY=290, endX=200, endY=350
    )
    assert "mouse.move(60, 290)\nawait page.mouse.down()" in text
    assert "mousedown 60,290 0" in section(text, "Snapshot")
    assert "mouseup 200,350 0" in section(text, "Snapshot")


async def test_a_drag_draws_a_line_on_a_canvas(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.page.set_content("""<canvas width=300 height=200></canvas><script>
      const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d");
      let at;
      canvas.onmousemove = event => {
        if (event.buttons && at) {
          pen.beginPath();
          pen.moveTo(at.offsetX, at.offsetY);
          pen.lineTo(event.offsetX, event.offsetY);
          pen.stroke();
        }
        at = event.buttons ? event : null;
      };</script>""")
    await browse.text("mouse_drag_xy", startX=40, startY=50, endX=240, endY=50)
    row = "document.querySelector('canvas').getContext('2d').getImageData(0, 42, 300, 1).data"
    drawn = await browse.value(f"() => [...{row}].filter((_, i) => i % 4 == 3 && _).length")
    assert drawn > 150


async def test_the_wheel_scrolls(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/many?refs=400")
    await browse.text("mouse_move_xy", x=200, y=200)
    assert "await page.mouse.wheel(0, 300)" in await browse.text("mouse_wheel", deltaY=300)
    await browse.page.wait_for_function("() => scrollY > 0")


@pytest.mark.thorough
async def test_a_click_that_opens_a_dialog_says_so(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    box = await browse.value(
        "() => { const b = document.querySelector('button').getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; }"
    )
    text = await browse.text("mouse_click_xy", x=box[0], y=box[1])
    assert "can be handled by browser_handle_dialog" in section(text, "Modal state")
    await browse.text("handle_dialog", accept=True)


async def test_half_a_click_is_refused(browse: Browse) -> None:
    with pytest.raises(InvalidArgument):
        await browse.call("mouse_click_xy", x=1, y=1, clickCount=1.5)
