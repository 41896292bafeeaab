"""The console of the page."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..call import Call
from ..session.tab import LEVELS, Level
from ..tool import BrowserArguments, BrowserTool, Filename, tool


class ConsoleMessages(BrowserArguments):
    level: Annotated[Level, Field(description="This level and what is more severe")] = "info"
    all: Annotated[bool | None, Field(description="Also of pages before this one in the tab")] = (
        None
    )
    filename: Filename = None


@tool("browser_console_messages", title="Get console messages", read_only=True)
async def console_messages(call: Call, given: ConsoleMessages) -> None:
    """Return the console messages and uncaught errors of the page."""
    tab = await call.tab()
    of_page = tab.console_of_page()
    wanted = LEVELS[: LEVELS.index(given.level) + 1]
    shown = [line for line in (tab.console if given.all else of_page) if line.level in wanted]
    errors, warnings = tab.troubles()
    head = f"Total messages: {len(of_page)} (Errors: {errors}, Warnings: {warnings})"
    if len(shown) != len(of_page):
        head += f"\n{len(shown)} of level {given.level} and above:"
    text = "\n".join([head, "", *map(str, shown)])
    await call.put(text, given.filename, label="Console")


TOOLS: list[BrowserTool] = [console_messages]
