"""A client on mcp 1.30: JSON lines in, JSON lines out.

The first line says how to connect, every further line is one command, and each command is answered with one line:

    {"command": ["statehold"], "env": {}, "cwd": "...", "reconnect": true}      stdio
    {"url": "http://...", "transport": "http" or "sse", "headers": {}}          HTTP
    more keys: "elicit": the JSON of an ElicitResult, "sample": a text; without them the client cannot be asked
    {"do": "list"}
    {"do": "call", "tool": "inc", "arguments": {}, "meta": {}, "timeout": 30}
    {"do": "read", "uri": "..."}, {"do": "resources"}, {"do": "prompts"}, {"do": "initialize"}

With `reconnect` every command opens a connection of its own. An answer is `{"ok": true, "result": ..., "progress": [],
"logs": [], "asked": []}` or `{"ok": false, "error": {"type": ..., "code": ..., "message": ...}}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

JSON = dict[str, Any]


class Seen:
    """What the server sent during one command."""

    def __init__(self, settings: JSON) -> None:
        self.settings = settings
        self.progress: list[list[Any]] = []
        self.logs: list[Any] = []
        self.asked: list[JSON] = []

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append([progress, total, message])

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(params.data)

    async def on_elicit(self, _: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.model_dump(mode="json", exclude_none=True))
        return types.ElicitResult.model_validate(self.settings["elicit"])

    async def on_sample(
        self, _: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.asked.append(params.model_dump(mode="json", exclude_none=True))
        content = types.TextContent(type="text", text=self.settings["sample"])
        return types.CreateMessageResult(role="assistant", content=content, model="test")


@asynccontextmanager
async def streams(settings: JSON) -> AsyncIterator[tuple[Any, Any]]:
    headers = settings.get("headers")
    if "command" in settings:
        program, *arguments = settings["command"]
        parameters = StdioServerParameters(
            command=program, args=arguments, env=settings.get("env"), cwd=settings.get("cwd")
        )
        async with stdio_client(parameters) as (read, write):
            yield read, write
    elif settings.get("transport") == "sse":
        async with sse_client(settings["url"], headers=headers) as (read, write):
            yield read, write
    else:
        async with streamablehttp_client(settings["url"], headers=headers) as (read, write, _):
            yield read, write


@asynccontextmanager
async def connected(settings: JSON, seen: Seen) -> AsyncIterator[tuple[ClientSession, JSON]]:
    async with (
        streams(settings) as (read, write),
        ClientSession(
            read,
            write,
            logging_callback=seen.on_log,
            elicitation_callback=seen.on_elicit if "elicit" in settings else None,
            sampling_callback=seen.on_sample if "sample" in settings else None,
        ) as session,
    ):
        hello = await session.initialize()
        yield session, hello.model_dump(mode="json", by_alias=True, exclude_none=True)


async def run(session: ClientSession, hello: JSON, command: JSON, seen: Seen) -> JSON:
    what = command["do"]
    if what == "initialize":
        return hello
    if what == "list":
        result = await session.list_tools()
    elif what == "call":
        result = await session.call_tool(
            command["tool"],
            command.get("arguments"),
            read_timeout_seconds=timedelta(seconds=command.get("timeout", 30)),
            progress_callback=seen.on_progress,
            meta=command.get("meta"),
        )
    elif what == "resources":
        result = await session.list_resources()
    elif what == "read":
        result = await session.read_resource(command["uri"])
    elif what == "prompts":
        result = await session.list_prompts()
    else:
        raise ValueError(f"unknown command {what!r}")
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def answered(work: Any, seen: Seen) -> None:
    try:
        result = await work()
        answer: JSON = {"ok": True, "result": result}
    except Exception as problem:
        answer = {"ok": False, "error": described(problem)}
    answer |= {"progress": seen.progress, "logs": seen.logs, "asked": seen.asked}
    print(json.dumps(answer), flush=True)  # noqa: T201


def described(problem: BaseException) -> JSON:
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    if isinstance(problem, McpError):
        error = problem.error
        return {
            "type": "McpError",
            "code": error.code,
            "message": error.message,
            "data": error.data,
        }
    return {"type": type(problem).__name__, "code": None, "message": str(problem)}


async def lines() -> AsyncIterator[JSON]:
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        if line.strip():
            yield json.loads(line)


async def each_on_its_own(settings: JSON) -> None:
    async for command in lines():
        seen = Seen(settings)

        async def work(command: JSON = command, seen: Seen = seen) -> JSON:
            async with connected(settings, seen) as (session, hello):
                return await run(session, hello, command, seen)

        await answered(work, seen)


async def all_on_one(settings: JSON) -> None:
    seen = Seen(settings)
    async with connected(settings, seen) as (session, hello):
        async for command in lines():
            seen.progress, seen.logs, seen.asked = [], [], []

            async def work(command: JSON = command) -> JSON:
                return await run(session, hello, command, seen)

            await answered(work, seen)


async def main() -> None:
    settings = json.loads(sys.stdin.readline())
    if settings.get("reconnect"):
        await each_on_its_own(settings)
    else:
        await all_on_one(settings)


if __name__ == "__main__":
    anyio.run(main)
