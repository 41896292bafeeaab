"""Acting on elements: clicking, typing, choosing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..call import Call
from ..tool import Arguments, BrowserTool, tool


class Click(Arguments):
    target: str
    element: str | None = None
    double_click: bool = Field(default=False, alias="doubleClick")
    button: Literal["left", "right", "middle"] = "left"
    modifiers: list[Literal["Alt", "Control", "ControlOrMeta", "Meta", "Shift"]] | None = None


@tool("browser_click", title="Click")
async def click(call: Call, given: Click) -> None:
    """Click on an element, given by its ref or a selector."""
    locator = await call.locate(given.target, given.element)
    press = locator.dblclick if given.double_click else locator.click
    await call.act(
        lambda: press(button=given.button, modifiers=given.modifiers, timeout=call.timeout)
    )
    call.answer.code(f"await {call.answer_code}.{'dblclick' if given.double_click else 'click'}()")


TOOLS: list[BrowserTool] = [click]
