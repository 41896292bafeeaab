"""langchain-mcp-adapters as people use it: MultiServerMCPClient, which opens a new MCP connection for every tool call.

One JSON object in:
`{"servers": {NAME: CONNECTION}, "calls": [{"tool": ..., "arguments": {}}], "one_session": NAME or null}`. One out:
`{"version": ..., "tools": [NAME], "schemas": {NAME: SCHEMA}, "results": [...]}`, where a result is
`{"content": ..., "artifact": ...}` or `{"error": {"type": ..., "message": ...}}`. The calls run one after the other;
`one_session` names a server whose calls all share one connection.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

JSON = dict[str, Any]


@asynccontextmanager
async def tools_of(given: JSON) -> AsyncIterator[list[Any]]:
    client = MultiServerMCPClient(given["servers"])
    shared = given.get("one_session")
    if shared is None:
        yield await client.get_tools()
        return
    async with client.session(shared) as session:
        yield await load_mcp_tools(session)


async def called(tool: Any, arguments: JSON) -> JSON:
    request = {"type": "tool_call", "id": "1", "name": tool.name, "args": arguments}
    try:
        message = await tool.ainvoke(request)
    except Exception as problem:
        return {"error": {"type": type(problem).__name__, "message": str(problem)}}
    return {"content": message.content, "artifact": message.artifact, "status": message.status}


async def main() -> None:
    given: JSON = json.load(sys.stdin)
    async with tools_of(given) as tools:
        by_name = {tool.name: tool for tool in tools}
        results = [
            await called(by_name[call["tool"]], call.get("arguments", {}))
            for call in given.get("calls", [])
        ]
    schemas = {
        name: tool.args_schema if isinstance(tool.args_schema, dict) else None
        for name, tool in by_name.items()
    }
    found = {
        "version": version("langchain-mcp-adapters"),
        "tools": list(by_name),
        "schemas": schemas,
        "results": results,
    }
    json.dump(found, sys.stdout, default=str)


if __name__ == "__main__":
    asyncio.run(main())
