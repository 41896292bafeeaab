"""Looking at a page: its snapshot, a picture, a value."""

from __future__ import annotations

from pydantic import Field

from ..call import Call
from ..tool import Arguments, BrowserTool, tool


class TakeSnapshot(Arguments):
    target: str | None = None
    depth: int | None = Field(default=None, ge=1)
    boxes: bool | None = None


@tool("browser_snapshot", title="Page snapshot", kind="read")
async def snapshot(call: Call, given: TakeSnapshot) -> None:
    """Return the page as text: its roles, names and values, with a ref for each element that other tools take."""
    tab = await call.tab()
    call.shows_page = True
    locator = await call.locate(given.target) if given.target else None
    options = {"depth": given.depth, "boxes": given.boxes}
    wanted = {key: value for key, value in options.items() if value is not None}
    call.answer.snapshot(await call.snapshot_of(tab, locator, **wanted))


class Evaluate(Arguments):
    function: str
    element: str | None = None
    target: str | None = None


@tool("browser_evaluate", title="Evaluate JavaScript", patience="script")
async def evaluate(call: Call, given: Evaluate) -> None:
    """Run a JavaScript function in the page, or on one element, and return what it returns."""
    tab = await call.tab()
    if given.target is None:
        found = await call.act(
            lambda: tab.page.evaluate(given.function), quiet=False, snapshot=False
        )
        call.answer.code(f"await page.evaluate({given.function!r})")
    else:
        locator = await call.locate(given.target, given.element)
        found = await call.act(
            lambda: locator.evaluate(given.function, timeout=call.timeout),
            quiet=False,
            snapshot=False,
        )
        call.answer.code(f"await {call.answer_code}.evaluate({given.function!r})")
    call.answer.value(found)


TOOLS: list[BrowserTool] = [snapshot, evaluate]
