"""Acting on elements with the mouse: clicking, hovering, dragging, dropping."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import anyio
from pydantic import Field

from ..call import Call
from ..session.failures import ToolFailed
from ..session.uploads import allowed_paths
from ..tool import BrowserArguments, BrowserTool, Element, Target, tool

RELEASE_SECONDS: Final = 1.0


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
async def click(call: Call, given: Click) -> None:
    """Click on an element, and answer with the snapshot of what the page became."""
    locator = await call.locate(given.target, given.element)
    options: Any = {"button": given.button, "modifiers": given.modifiers}
    options = {key: value for key, value in options.items() if value is not None}
    press = locator.dblclick if given.double_click else locator.click
    code = f"await {call.answer_code}.{'dblclick' if given.double_click else 'click'}"
    await call.act(lambda: press(timeout=call.timeout, **options))
    written = ", ".join(f"{key}={value!r}" for key, value in options.items())
    call.answer.code(f"{code}({written})")


class Hover(BrowserArguments):
    target: Target
    element: Element = None


@tool("browser_hover", title="Hover mouse")
async def hover(call: Call, given: Hover) -> None:
    """Move the mouse onto an element, which opens menus and tooltips."""
    locator = await call.locate(given.target, given.element)
    await call.act(lambda: locator.hover(timeout=call.timeout))
    call.answer.code(f"await {call.answer_code}.hover()")


class Drag(BrowserArguments):
    start_target: Annotated[Target, Field(alias="startTarget")]
    end_target: Annotated[Target, Field(alias="endTarget")]
    start_element: Annotated[Element, Field(alias="startElement")] = None
    end_element: Annotated[Element, Field(alias="endElement")] = None


@tool("browser_drag", title="Drag mouse")
async def drag(call: Call, given: Drag) -> None:
    """Drag one element onto another."""
    from playwright.async_api import Error

    start = await call.locate(given.start_target, given.start_element)
    start_code = call.answer_code
    end = await call.locate(given.end_target, given.end_element)
    mouse = (await call.tab()).page.mouse

    async def pull() -> None:
        try:
            await start.drag_to(end, timeout=call.timeout)
        except Error:
            # The button may still be pressed; release it where the release clicks and drops nothing.
            with anyio.move_on_after(RELEASE_SECONDS), suppress(Error):
                await mouse.move(0, 0)
                await mouse.up()
            raise

    await call.act(pull)
    call.answer.code(f"await {start_code}.drag_to({call.answer_code})")


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
async def drop(call: Call, given: Drop) -> None:
    """Drop files or texts onto an element, as if dragged from outside of the page."""
    if not given.paths and not given.data:
        raise ToolFailed("Give paths or data to drop.")
    payload: Any = {}
    if given.paths:
        payload["files"] = await allowed_paths(call.session, given.paths)
    if given.data:
        payload["data"] = given.data
    locator = await call.locate(given.target, given.element)
    await call.act(lambda: locator.drop(payload, timeout=call.timeout))
    written: Any = payload | ({"files": given.paths} if given.paths else {})
    call.answer.code(f"await {call.answer_code}.drop({written!r})")


TOOLS: list[BrowserTool] = [click, hover, drag, drop]
