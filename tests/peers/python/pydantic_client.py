"""pydantic-ai as people use it: an `MCPToolset` for a URL, whose tools are called directly, without a model.

One JSON object in: `{"url": "http://...", "steps": [STEP]}`. A step is `{"list": true}`, or
`{"tool": NAME, "arguments": {}, "cancel": true}`; each opens a connection of its own, and `cancel` cancels the call on its
first progress. Out comes a JSON list with one object per step: `{"result": ... or "error": MESSAGE, "progress": [NUMBER],
"asked": [MESSAGE]}`. An image is returned as `{"image": MEDIA TYPE, "bytes": N}`. A question is answered with 42.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from pydantic_ai import BinaryContent
from pydantic_ai.mcp import MCPToolset

JSON = dict[str, Any]


async def run(url: str, step: JSON) -> JSON:
    progress: list[float] = []
    asked: list[str] = []
    found: JSON = {"progress": progress, "asked": asked}
    cancellation = anyio.CancelScope()

    async def on_progress(value: float, _total: float | None, _message: str | None) -> None:
        progress.append(value)
        if step.get("cancel"):
            cancellation.cancel()

    async def on_elicitation(message: str, *_: object) -> JSON:
        asked.append(message)
        return {"answer": "42"}

    toolset = MCPToolset(
        url,
        tool_error_behavior="error",
        progress_handler=on_progress,
        elicitation_handler=on_elicitation,
    )
    async with toolset:
        if step.get("list"):
            tools = await toolset.list_tools()
            return {**found, "result": {tool.name: tool.inputSchema for tool in tools}}
        try:
            with cancellation:
                result = await toolset.direct_call_tool(step["tool"], step.get("arguments", {}))
                return {**found, "result": described(result)}
        except Exception as problem:
            return {**found, "error": str(problem)}
        return {**found, "error": "cancelled"}


def described(result: Any) -> Any:
    if isinstance(result, BinaryContent):
        return {"image": result.media_type, "bytes": len(result.data)}
    return result


async def main() -> None:
    given: JSON = json.load(sys.stdin)
    json.dump([await run(given["url"], step) for step in given["steps"]], sys.stdout)


if __name__ == "__main__":
    anyio.run(main)
