"""An SDK server of both eras whose tool `ask` asks by the 2026-07-28 revision only: `python asks_modern.py`, over stdio."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from serving import over_stdio

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"answer": {"type": "string"}}}


async def list_tools(*_: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="ask", input_schema={"type": "object"})])


async def call_tool(_: object, params: types.CallToolRequestParams) -> Any:
    if params.input_responses:
        return types.CallToolResult(content=[types.TextContent(text="answered")])
    question = types.ElicitRequestFormParams(message="What?", requested_schema=SCHEMA)
    return types.InputRequiredResult(input_requests={"one": types.ElicitRequest(params=question)})


server = Server("asks", on_list_tools=list_tools, on_call_tool=call_tool)

if __name__ == "__main__":
    anyio.run(over_stdio, server, "both", None)
