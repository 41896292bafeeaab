"""Highlights of elements on the page, and step-by-step execution of actions."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Final

from pydantic import Field

from .. import errors
from ..call import BrowserCall
from ..errors import BrowserToolFailed, describe_error
from ..tool import BrowserArguments, BrowserTool, Element, Target, tool

_LOCATION: Final = re.compile(r"(.+):(\d{1,9})")


class Highlight(BrowserArguments):
    target: Target
    element: Element = None
    style: Annotated[
        str | None, Field(description="CSS of the overlay, such as outline: 2px dashed red")
    ] = None


@tool("browser_highlight", title="Highlight element", cap="devtools", read_only=True)
async def highlight(call: BrowserCall, arguments: Highlight) -> None:
    """Lay a mark over an element, which stays and is on screenshots, until browser_hide_highlight."""
    locator = await call.locate(arguments.target, arguments.element)
    await locator.highlight(style=arguments.style)
    call.answer.result(f"Highlighted {_described(call, arguments.element)}")


def _described(call: BrowserCall, element: str | None) -> str:
    return element or call.answer.translated(call.element_code).removesuffix(";")


class HideHighlight(BrowserArguments):
    target: Target | None = None
    element: Element = None


@tool("browser_hide_highlight", title="Hide element highlight", cap="devtools", read_only=True)
async def hide_highlight(call: BrowserCall, arguments: HideHighlight) -> None:
    """Remove the mark of one element, or all marks of the page."""
    if arguments.target is None:
        await (await call.tab()).page.hide_highlight()
        call.answer.result("Hid page highlight")
        return
    locator = await call.locate(arguments.target, arguments.element)
    await locator.hide_highlight()
    call.answer.result(f"Hid highlight for {_described(call, arguments.element)}")


class Resume(BrowserArguments):
    step: Annotated[bool | None, Field(description="Pause again before the next action")] = None
    location: Annotated[
        str | None, Field(description="Pause at a line of code that is run, as file:line")
    ] = None


@tool("browser_resume", title="Resume paused script execution", cap="devtools", answers="pause")
async def resume(call: BrowserCall, arguments: Resume) -> None:
    """Let the action that was held back go on. With step, also when none is, the next action is held back before it runs."""
    debugger = call.session.context.debugger
    location = _LOCATION.fullmatch(arguments.location) if arguments.location else None
    if arguments.location and location is None:
        raise BrowserToolFailed(f"{arguments.location!r} is no location; write it as file:line.")
    is_paused = debugger.paused_details is not None
    if not is_paused and not (arguments.step and location is None):
        raise BrowserToolFailed("Nothing is paused; with step the next action is held back.")
    resume_action = debugger.resume
    if location is not None:
        file, line = location[1], int(location[2])
        resume_action = partial(debugger.run_to, {"file": file, "line": line, "column": None})
    tab = await call.tab()

    async def run() -> None:
        await resume_action()
        await call.session.wait_for_background_action(tab)

    try:
        if is_paused:
            await call.act(run)
    except errors.Error as error:
        raise BrowserToolFailed(f"It was not resumed: {describe_error(error)}") from None
    if arguments.step:
        call.session.step()
    call.answer.result("Resumed." if is_paused else "The next action will be held back.")


TOOLS: list[BrowserTool] = [highlight, hide_highlight, resume]
