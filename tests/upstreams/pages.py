"""A browser that has only its tools: it knows its page, and draws it as one pixel. Over HTTP+SSE one page per connection.

`python pages.py --transport sse [--port N]`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from serving import arguments, run

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
Page: TypeAlias = dict[str, str]
Context: TypeAlias = ServerRequestContext[Page, Any]


async def list_tools(_ctx: Context, _: object) -> types.ListToolsResult:
    address = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    return types.ListToolsResult(
        tools=[
            types.Tool(name="browser_navigate", input_schema=address),
            types.Tool(name="browser_take_screenshot", input_schema=nothing),
        ]
    )


async def call(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    page = ctx.lifespan_context
    if params.name == "browser_navigate":
        page["url"] = str((params.arguments or {})["url"])
        return types.CallToolResult(content=[types.TextContent(text=page["url"])])
    shown = types.ImageContent(data=PIXEL, mime_type="image/png")
    return types.CallToolResult(
        content=[types.TextContent(text=page.get("url", "about:blank")), shown]
    )


def main() -> None:
    pages: Page = {}

    @asynccontextmanager
    async def life(_: Server[Page]) -> AsyncGenerator[Page]:
        yield pages

    server = Server("pages", lifespan=life, on_list_tools=list_tools, on_call_tool=call)
    run(server, arguments(__doc__ or "").parse_args(), dict)


if __name__ == "__main__":
    main()
