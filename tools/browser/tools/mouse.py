"""The mouse: on elements, and by coordinates on the page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import anyio
from pydantic import Field

from .. import errors
from ..answers.naming import role_of
from ..call import BrowserCall
from ..errors import BrowserToolFailed
from ..session.uploads import allowed_paths, upload_folders
from ..tool import BrowserArguments, BrowserTool, Element, Target, Whole, tool
from .form import ROLES, label_of

if TYPE_CHECKING:
    from playwright.async_api import Locator, Mouse

Button: TypeAlias = Literal["left", "right", "middle"]
Across = Annotated[float, Field(description="Pixels from the left edge of the viewport")]
Down = Annotated[float, Field(description="Pixels from its upper edge")]
RELEASE_SECONDS: Final = 1.0
DRAG_PIXELS: Final = 8
"""The way that the mouse is moved to start a drag; Chromium starts one after some three pixels."""
DRAG_STEPS: Final = 10
"""The moves of a drag. Pages draw a line and trade places in a list from move to move."""
DROP_SECONDS: Final = 0.1
"""Seconds between the last move and the release: some pages look for the mouse only every 50 ms, or in the next frame."""
SCROLL_SECONDS: Final = 0.5
"""Seconds for which the end of a drag may move, since the page scrolls to it."""
FRAME_SECONDS: Final = 0.02
COVERED_MILLISECONDS: Final = 1000.0
"""Milliseconds after which a click that waits is tried on the label of its element."""
SCROLL: Final = "element => element.scrollIntoViewIfNeeded()"


class Click(BrowserArguments):
    target: Target
    element: Element = None
    double_click: Annotated[
        bool | None, Field(alias="doubleClick", description="Twice instead of once")
    ] = None
    button: Annotated[
        Literal["left", "right", "middle"] | None, Field(description="left when left out")
    ] = None
    modifiers: Annotated[
        list[Literal["Alt", "Control", "ControlOrMeta", "Meta", "Shift"]] | None,
        Field(description="Keys that are held down meanwhile"),
    ] = None


@tool("browser_click", title="Click")
async def click(call: BrowserCall, arguments: Click) -> None:
    """Click on an element, and answer with the snapshot of what the page became."""
    locator = await call.locate(arguments.target, arguments.element)
    options: Any = {"button": arguments.button, "modifiers": arguments.modifiers}
    options = {key: value for key, value in options.items() if value is not None}
    name = "dblclick" if arguments.double_click else "click"
    if call.session.has_touch and name == "click" and options.get("button", "left") == "left":
        name = "tap"
        options.pop("button", None)

    async def press() -> None:
        timeout, label = call.timeout, None
        if await _may_be_hidden(call, arguments):
            label = await label_of(locator, timeout)
        elif timeout > COVERED_MILLISECONDS:
            # A snapshot shows a file input as a button; buttons are seldom covered.
            try:
                await getattr(locator, name)(timeout=COVERED_MILLISECONDS, **options)
                return
            except errors.TimeoutError as error:
                if f"performing {name} action" in str(error) or "waiting for scheduled" in str(
                    error
                ):
                    raise
            label, timeout = await label_of(locator, timeout), timeout - COVERED_MILLISECONDS
        clicked, place = (
            (locator, {}) if label is None else (label.element, {"position": label.position})
        )
        await getattr(clicked, name)(timeout=timeout, **place, **options)

    await call.act(press)
    code_options = ", ".join(f"{key}={value!r}" for key, value in options.items())
    call.answer.code(f"await {call.element_code}.{name}({code_options})")


async def _may_be_hidden(call: BrowserCall, arguments: Click) -> bool:
    """Return whether the element may be a checkbox, which pages hide. The snapshot knows it of a ref, without a query."""
    role = role_of((await call.tab()).last_snapshot or "", arguments.target)
    return role is None or role in ROLES


class Hover(BrowserArguments):
    target: Target
    element: Element = None


@tool("browser_hover", title="Hover mouse")
async def hover(call: BrowserCall, arguments: Hover) -> None:
    """Move the mouse onto an element, which opens menus and tooltips."""
    locator = await call.locate(arguments.target, arguments.element)
    await call.act(lambda: locator.hover(timeout=call.timeout))
    call.answer.code(f"await {call.element_code}.hover()")


class Drag(BrowserArguments):
    start_target: Annotated[Target, Field(alias="startTarget")]
    end_target: Annotated[Target, Field(alias="endTarget")]
    start_element: Annotated[Element, Field(alias="startElement")] = None
    end_element: Annotated[Element, Field(alias="endElement")] = None


@tool("browser_drag", title="Drag mouse")
async def drag(call: BrowserCall, arguments: Drag) -> None:
    """Drag one element onto another."""
    start = await call.locate(arguments.start_target, arguments.start_element)
    start_code = call.element_code
    end = await call.locate(arguments.end_target, arguments.end_element)
    mouse = (await call.tab()).page.mouse

    async def pull() -> None:
        async with _release_on_failure(mouse):
            # Not drag_to(): it scrolls to the end before the page has seen the mouse move, which starts no drag, and it
            # waits until nothing covers the end, but what is dragged does.
            await start.hover(timeout=call.timeout)
            x, y = await _center(start, call.timeout)
            await mouse.down()
            await mouse.move(x + DRAG_PIXELS, y + DRAG_PIXELS, steps=2)
            await _require_visible(end, call.timeout)
            await end.evaluate(SCROLL, timeout=call.timeout)
            await _move_and_drop(mouse, *await _resting_center(end, call.timeout))

    await call.act(pull)
    call.answer.code(f"await {start_code}.drag_to({call.element_code})")


async def _require_visible(locator: Locator, timeout: float) -> None:
    """Wait until the end of a drag is visible. Raises BrowserToolFailed after `timeout` milliseconds."""
    try:
        await locator.wait_for(state="visible", timeout=timeout)
    except errors.TimeoutError:
        raise BrowserToolFailed(
            f"Timeout {timeout:g}ms exceeded: the end element is not visible."
        ) from None


async def _center(locator: Locator, timeout: float) -> tuple[float, float]:
    """Return the center of the part of an element that the viewport shows."""
    box = await locator.bounding_box(timeout=timeout)
    if box is None:
        raise BrowserToolFailed("The element of the drag is not visible.")
    width, height = await locator.page.evaluate("() => [innerWidth, innerHeight]")
    left, right = max(box["x"], 0), min(box["x"] + box["width"], width)
    top, bottom = max(box["y"], 0), min(box["y"] + box["height"], height)
    return (left + right) / 2, (top + bottom) / 2


async def _resting_center(locator: Locator, timeout: float) -> tuple[float, float]:
    """Return the center of an element as soon as it does not move, or after SCROLL_SECONDS."""
    center = await _center(locator, timeout)
    with anyio.move_on_after(SCROLL_SECONDS):
        while True:
            await anyio.sleep(FRAME_SECONDS)
            before, center = center, await _center(locator, timeout)
            if before == center:
                break
    return center


async def _move_and_drop(mouse: Mouse, x: float, y: float) -> None:
    """Move the pressed mouse to a point, step by step, and release it there."""
    await mouse.move(x, y, steps=DRAG_STEPS)
    # A page learns where it is dragged to from the second move there.
    await mouse.move(x, y)
    await anyio.sleep(DROP_SECONDS)
    await mouse.up()


@asynccontextmanager
async def _release_on_failure(mouse: Mouse) -> AsyncGenerator[None]:
    """Release the mouse button if the block fails or is cancelled, where the release clicks and drops nothing."""
    try:
        yield
    except BaseException:
        with anyio.move_on_after(RELEASE_SECONDS, shield=True), suppress(errors.Error):
            await mouse.move(0, 0)
            await mouse.up()
        raise


class Drop(BrowserArguments):
    target: Target
    element: Element = None
    paths: Annotated[
        list[str] | None, Field(description="Files of the session, or from the upload folders")
    ] = None
    data: Annotated[
        dict[str, str] | None, Field(description="Texts by MIME type, such as text/plain")
    ] = None


@tool("browser_drop", title="Drop files or data onto an element")
async def drop(call: BrowserCall, arguments: Drop) -> None:
    """Drop files or texts onto an element, as if dragged from outside of the page."""
    if not arguments.paths and not arguments.data:
        raise BrowserToolFailed('At least one of "paths" or "data" must be provided.')
    payload: Any = {}
    if arguments.paths:
        folders = await upload_folders(call.session, call.ctx, arguments.paths)
        payload["files"] = await allowed_paths(call.session, arguments.paths, folders)
    if arguments.data:
        payload["data"] = arguments.data
    locator = await call.locate(arguments.target, arguments.element)
    await call.act(lambda: locator.drop(payload, timeout=call.timeout))
    code_payload: Any = payload | ({"files": arguments.paths} if arguments.paths else {})
    call.answer.code(f"await {call.element_code}.drop({code_payload!r})")


class Point(BrowserArguments):
    element: Element = None
    x: Across
    y: Down


@tool("browser_mouse_move_xy", title="Move mouse", cap="vision")
async def mouse_move_xy(call: BrowserCall, arguments: Point) -> None:
    """Move the mouse to a point of the viewport."""
    mouse = (await call.tab()).page.mouse
    await call.act(lambda: mouse.move(arguments.x, arguments.y), quiet=False, snapshot=False)
    call.answer.code(f"await page.mouse.move({arguments.x:.9g}, {arguments.y:.9g})")


class ClickPoint(Point):
    button: Button | None = None
    click_count: Annotated[Whole | None, Field(alias="clickCount", ge=1, le=20)] = None
    delay: Annotated[
        float | None,
        Field(ge=0, le=10_000, description="Milliseconds that the button is held"),
    ] = None


@tool("browser_mouse_click_xy", title="Click", cap="vision", limit="wait")
async def mouse_click_xy(call: BrowserCall, arguments: ClickPoint) -> None:
    """Click at a point of the viewport."""
    page = (await call.tab()).page
    options: dict[str, Any] = arguments.model_dump(exclude={"element", "x", "y"}, exclude_none=True)
    if call.session.has_touch and not options:
        await call.act(lambda: page.touchscreen.tap(arguments.x, arguments.y))
        call.answer.code(f"await page.touchscreen.tap({arguments.x:.9g}, {arguments.y:.9g})")
        return
    await call.act(lambda: page.mouse.click(arguments.x, arguments.y, **options))
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    call.answer.code(f"await page.mouse.click({arguments.x:.9g}, {arguments.y:.9g}{more})")


class DragPoints(BrowserArguments):
    element: Element = None
    start_x: Annotated[Across, Field(alias="startX")]
    start_y: Annotated[Down, Field(alias="startY")]
    end_x: Annotated[Across, Field(alias="endX")]
    end_y: Annotated[Down, Field(alias="endY")]


@tool("browser_mouse_drag_xy", title="Drag mouse", cap="vision")
async def mouse_drag_xy(call: BrowserCall, arguments: DragPoints) -> None:
    """Press the left button at one point of the viewport, move the mouse in steps, and release it at another."""
    mouse = (await call.tab()).page.mouse

    async def drag() -> None:
        async with _release_on_failure(mouse):
            await mouse.move(arguments.start_x, arguments.start_y)
            await mouse.down()
            await _move_and_drop(mouse, arguments.end_x, arguments.end_y)

    await call.act(drag)
    call.answer.code(f"await page.mouse.move({arguments.start_x:.9g}, {arguments.start_y:.9g})")
    call.answer.code("await page.mouse.down()")
    end = f"{arguments.end_x:.9g}, {arguments.end_y:.9g}"
    call.answer.code(f"await page.mouse.move({end}, steps={DRAG_STEPS})")
    call.answer.code("await page.mouse.up()")


class OneButton(BrowserArguments):
    button: Button | None = None


@tool("browser_mouse_down", title="Press mouse down", cap="vision")
async def mouse_down(call: BrowserCall, arguments: OneButton) -> None:
    """Press a mouse button where the mouse is, and keep it pressed until browser_mouse_up."""
    mouse = (await call.tab()).page.mouse
    await call.act(lambda: mouse.down(button=arguments.button), quiet=False, snapshot=False)
    call.answer.code(f"await page.mouse.down({_button_code(arguments)})")


@tool("browser_mouse_up", title="Press mouse up", cap="vision")
async def mouse_up(call: BrowserCall, arguments: OneButton) -> None:
    """Release a mouse button."""
    mouse = (await call.tab()).page.mouse
    await call.act(lambda: mouse.up(button=arguments.button), quiet=False, snapshot=False)
    call.answer.code(f"await page.mouse.up({_button_code(arguments)})")


def _button_code(arguments: OneButton) -> str:
    return f"button={arguments.button!r}" if arguments.button else ""


class Wheel(BrowserArguments):
    delta_x: Annotated[float, Field(alias="deltaX", description="Pixels to the right")] = 0
    delta_y: Annotated[float, Field(alias="deltaY", description="Pixels down")] = 0


@tool("browser_mouse_wheel", title="Scroll mouse wheel", cap="vision")
async def mouse_wheel(call: BrowserCall, arguments: Wheel) -> None:
    """Turn the mouse wheel where the mouse is, which scrolls what is there."""
    mouse = (await call.tab()).page.mouse
    await call.act(
        lambda: mouse.wheel(arguments.delta_x, arguments.delta_y), quiet=False, snapshot=False
    )
    call.answer.code(f"await page.mouse.wheel({arguments.delta_x:.9g}, {arguments.delta_y:.9g})")


TOOLS: list[BrowserTool] = [
    click,
    hover,
    drag,
    drop,
    mouse_move_xy,
    mouse_click_xy,
    mouse_drag_xy,
    mouse_down,
    mouse_up,
    mouse_wheel,
]
