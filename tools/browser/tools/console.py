"""The console of the page."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..call import BrowserCall
from ..session.tab import LEVELS, Level
from ..tool import BrowserArguments, BrowserTool, Filename, tool


class ConsoleMessages(BrowserArguments):
    level: Annotated[Level, Field(description="This level and what is more severe")] = "info"
    all: Annotated[bool | None, Field(description="Also of pages before this one in the tab")] = (
        None
    )
    filename: Filename = None


@tool("browser_console_messages", title="Get console messages", read_only=True)
async def console_messages(call: BrowserCall, arguments: ConsoleMessages) -> None:
    """Return the console messages and uncaught errors of the page."""
    tab = await call.tab()
    page_lines = tab.page_console()
    levels = LEVELS[: LEVELS.index(arguments.level) + 1]
    lines = [
        line for line in (tab.console if arguments.all else page_lines) if line.level in levels
    ]
    errors, warnings = tab.count_problems()
    head = f"Total messages: {len(page_lines)} (Errors: {errors}, Warnings: {warnings})"
    if len(lines) != len(page_lines):
        head += f'\nReturning {len(lines)} messages for level "{arguments.level}"'
    text = "\n".join([head, "", *map(str, lines)])
    await call.add_text(text, arguments.filename, label="Console")


TOOLS: list[BrowserTool] = [console_messages]
