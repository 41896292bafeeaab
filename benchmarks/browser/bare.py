"""Playwright alone, and behind the SDK's own server over stdio: the least time that a server in Python takes.

`python -m benchmarks.browser.bare` is that server.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from playwright.async_api import Page, async_playwright

COMMAND: Final = [sys.executable, "-m", "benchmarks.browser.bare"]
TOOLS: Final = (
    "browser_navigate",
    "browser_click",
    "browser_evaluate",
    "browser_snapshot",
    "browser_take_screenshot",
)


def shell() -> str | None:
    return shutil.which("chromium-headless-shell")


class Bare:
    """The actions of our tools in Playwright itself, by the tool's name, with the snapshot that our tools return."""

    name = "playwright"
    ref = ""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        page = self._page
        if tool == "browser_navigate":
            await page.goto(arguments["url"], wait_until="load")
            return await page.aria_snapshot(mode="ai")
        if tool == "browser_click":
            await page.get_by_ref(arguments["target"]).click()
            return await page.aria_snapshot(mode="ai")
        if tool == "browser_evaluate":
            return str(await page.evaluate(arguments["function"]))
        if tool == "browser_take_screenshot":
            return str(len(await page.screenshot(scale="css")))
        return await page.aria_snapshot(mode="ai")


@asynccontextmanager
async def opened() -> AsyncGenerator[Bare]:
    """Start a browser with one page; the end of the block closes both."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shell(), chromium_sandbox=False)
        page = await (await browser.new_context()).new_page()
        yield Bare(page)
        await browser.close()


async def main() -> None:
    async with opened() as browser:

        async def list_tools(
            _ctx: ServerRequestContext[Any, Any], _: object
        ) -> types.ListToolsResult:
            schema: dict[str, Any] = {"type": "object"}
            return types.ListToolsResult(
                tools=[types.Tool(name=name, input_schema=schema) for name in TOOLS]
            )

        async def call(
            _ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
        ) -> types.CallToolResult:
            text = await browser.call(params.name, dict(params.arguments or {}))
            return types.CallToolResult(content=[types.TextContent(text=text)])

        server = Server("bare", on_list_tools=list_tools, on_call_tool=call)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
