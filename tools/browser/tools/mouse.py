"""The mouse by coordinates, for what a snapshot does not show: canvases, maps, drawings.

Coordinates are CSS pixels of the viewport, as in a screenshot of it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from ..call import Call
from ..tool import BrowserArguments, BrowserTool, Whole, tool

Button: TypeAlias = Literal["left", "right", "middle"]
Across = Annotated[float, Field(description="Pixels from the left edge of the viewport")]
Down = Annotated[float, Field(description="Pixels from its upper edge")]


class Point(BrowserArguments):
    x: Across
    y: Down


@tool("browser_mouse_move_xy", title="Move mouse", cap="vision")
async def mouse_move_xy(call: Call, given: Point) -> None:
    """Move the mouse to a point of the viewport."""
    mouse = (await call.tab()).page.mouse
    await call.act(lambda: mouse.move(given.x, given.y), quiet=False, snapshot=False)
    call.answer.code(f"await page.mouse.move({given.x:.9g}, {given.y:.9g})")


class ClickPoint(Point):
    button: Button | None = None
    click_count: Annotated[Whole | None, Field(alias="clickCount", ge=1, le=20)] = None
    delay: Annotated[
        float | None,
        Field(ge=0, le=10_000, description="Milliseconds that the button is held"),
    ] = None


@tool("browser_mouse_click_xy", title="Click", cap="vision", limit="wait")
async def mouse_click_xy(call: Call, given: ClickPoint) -> None:
    """Click at a point of the viewport."""
    mouse = (await call.tab()).page.mouse
    options: dict[str, Any] = given.model_dump(exclude={"x", "y"}, exclude_none=True)
    await call.act(lambda: mouse.click(given.x, given.y, **options))
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    call.answer.code(f"await page.mouse.click({given.x:.9g}, {given.y:.9g}{more})")


class Drag(BrowserArguments):
    start_x: Annotated[Across, Field(alias="startX")]
    start_y: Annotated[Down, Field(alias="startY")]
    end_x: Annotated[Across, Field(alias="endX")]
    end_y: Annotated[Down, Field(alias="endY")]


@tool("browser_mouse_drag_xy", title="Drag mouse", cap="vision")
async def mouse_drag_xy(call: Call, given: Drag) -> None:
    """Press the left button at one point of the viewport and release it at another."""
    mouse = (await call.tab()).page.mouse

    async def drag() -> None:
        await mouse.move(given.start_x, given.start_y)
        await mouse.down()
        await mouse.move(given.end_x, given.end_y)
        await mouse.up()

    await call.act(drag)
    call.answer.code(f"await page.mouse.move({given.start_x:.9g}, {given.start_y:.9g})")
    call.answer.code("await page.mouse.down()")
    call.answer.code(f"await page.mouse.move({given.end_x:.9g}, {given.end_y:.9g})")
    call.answer.code("await page.mouse.up()")


class OneButton(BrowserArguments):
    button: Button | None = None


@tool("browser_mouse_down", title="Press mouse down", cap="vision")
async def mouse_down(call: Call, given: OneButton) -> None:
    """Press a mouse button where the mouse is, and keep it pressed until browser_mouse_up."""
    mouse = (await call.tab()).page.mouse
    await call.act(lambda: mouse.down(button=given.button), quiet=False, snapshot=False)
    call.answer.code(f"await page.mouse.down({_button(given)})")


@tool("browser_mouse_up", title="Press mouse up", cap="vision")
async def mouse_up(call: Call, given: OneButton) -> None:
    """Release a mouse button."""
    mouse = (await call.tab()).page.mouse
    await call.act(lambda: mouse.up(button=given.button), quiet=False, snapshot=False)
    call.answer.code(f"await page.mouse.up({_button(given)})")


def _button(given: OneButton) -> str:
    return f"button={given.button!r}" if given.button else ""


class Wheel(BrowserArguments):
    delta_x: Annotated[float, Field(alias="deltaX", description="Pixels to the right")] = 0
    delta_y: Annotated[float, Field(alias="deltaY", description="Pixels down")] = 0


@tool("browser_mouse_wheel", title="Scroll mouse wheel", cap="vision")
async def mouse_wheel(call: Call, given: Wheel) -> None:
    """Turn the mouse wheel where the mouse is, which scrolls what is there."""
    mouse = (await call.tab()).page.mouse
    await call.act(lambda: mouse.wheel(given.delta_x, given.delta_y), quiet=False, snapshot=False)
    call.answer.code(f"await page.mouse.wheel({given.delta_x:.9g}, {given.delta_y:.9g})")


TOOLS: list[BrowserTool] = [
    mouse_move_xy,
    mouse_click_xy,
    mouse_drag_xy,
    mouse_down,
    mouse_up,
    mouse_wheel,
]
