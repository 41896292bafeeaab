"""An SDK server of both eras, over stdio: `python asks_modern.py`.

Its tool `ask` asks by the 2026-07-28 revision only; `ask_older` and `ask_in_text` by the older one only, the latter with the
error in its result.
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from serving import over_stdio

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"answer": {"type": "string"}}}


async def list_tools(*_: object) -> types.ListToolsResult:
    names = ("ask", "ask_older", "ask_in_text")
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
    return types.ListToolsResult(tools=tools)


async def call_tool(
    ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> Any:
    if params.name != "ask":
        return await ask_older(ctx, params.name)
    if params.input_responses:
        return types.CallToolResult(content=[types.TextContent(text="answered")])
    question = types.ElicitRequestFormParams(message="What?", requested_schema=SCHEMA)
    return types.InputRequiredResult(input_requests={"one": types.ElicitRequest(params=question)})


async def ask_older(ctx: ServerRequestContext[Any, Any], tool: str) -> types.CallToolResult:
    try:
        answer = await ctx.session.elicit_form("What?", SCHEMA)
    except MCPError as error:
        if tool == "ask_older":
            raise
        text = types.TextContent(text=f"Error executing tool: {error.message}")
        return types.CallToolResult(content=[text], is_error=True)
    return types.CallToolResult(
        content=[types.TextContent(text=str((answer.content or {})["answer"]))]
    )


server = Server("asks", on_list_tools=list_tools, on_call_tool=call_tool)

if __name__ == "__main__":
    anyio.run(over_stdio, server, "both", None)
