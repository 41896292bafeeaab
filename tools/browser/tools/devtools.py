"""Highlights of elements on the page, and step-by-step execution of actions."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Final

from pydantic import Field

from ..call import Call
from ..session.failures import ToolFailed, in_words
from ..tool import BrowserArguments, BrowserTool, Element, Target, tool

_LOCATION: Final = re.compile(r"(.+):(\d{1,9})")


class Highlight(BrowserArguments):
    target: Target
    element: Element = None
    style: Annotated[
        str | None, Field(description="CSS of the overlay, such as outline: 2px dashed red")
    ] = None


@tool("browser_highlight", title="Highlight element", cap="devtools", read_only=True)
async def highlight(call: Call, given: Highlight) -> None:
    """Lay a mark over an element, which stays and is on screenshots, until browser_hide_highlight."""
    locator = await call.locate(given.target, given.element)
    await locator.highlight(style=given.style)
    call.answer.result(f"Highlighted {given.element or call.answer_code}")


class HideHighlight(BrowserArguments):
    target: Target | None = None
    element: Element = None


@tool("browser_hide_highlight", title="Hide element highlight", cap="devtools", read_only=True)
async def hide_highlight(call: Call, given: HideHighlight) -> None:
    """Remove the mark of one element, or all marks of the page."""
    if given.target is None:
        await (await call.tab()).page.hide_highlight()
        call.answer.result("Hid page highlight")
        return
    locator = await call.locate(given.target, given.element)
    await locator.hide_highlight()
    call.answer.result(f"Hid highlight for {given.element or call.answer_code}")


class Resume(BrowserArguments):
    step: Annotated[bool | None, Field(description="Pause again before the next action")] = None
    location: Annotated[
        str | None, Field(description="Pause at a line of code that is run, as file:line")
    ] = None


@tool("browser_resume", title="Resume paused script execution", cap="devtools", answers="pause")
async def resume(call: Call, given: Resume) -> None:
    """Let the action that was held back go on. With step, also when none is, the next action is held back before it runs."""
    from playwright.async_api import Error

    debugger = call.session.context.debugger
    place = _LOCATION.fullmatch(given.location) if given.location else None
    if given.location and place is None:
        raise ToolFailed(f"{given.location!r} is no location; write it as file:line.")
    held = debugger.paused_details is not None
    if not held and not (given.step and place is None):
        raise ToolFailed("Nothing is paused; with step the next action is held back.")
    go_on = debugger.resume
    if place is not None:
        file, line = place[1], int(place[2])
        go_on = partial(debugger.run_to, {"file": file, "line": line, "column": None})
    tab = await call.tab()

    async def let_go() -> None:
        await go_on()
        await call.session.caught_up(tab)

    try:
        if held:
            await call.act(let_go)
    except Error as error:
        raise ToolFailed(f"It was not resumed: {in_words(error)}") from None
    if given.step:
        call.session.step()
    call.answer.result("Resumed." if held else "The next action will be held back.")


TOOLS: list[BrowserTool] = [highlight, hide_highlight, resume]
