"""An SDK server whose tool runs as a task (SEP-2663), by a script in its arguments.

`python task_server.py [--transport stdio|http] [--port N] [--era E] [--stateless] [--log FILE]`. Each entry of `script` has
the members of the task in one answer, first that of `tools/call`; the last one repeats. An entry `{"refuse": CODE}` is a
refusal instead. An entry with `inputRequests` is passed when all are answered, one with `once` in any case. `must` needs a
client with tasks, `may` runs to its end without. `hidden` is only listed for clients with tasks. The log has the requests
that concern tasks.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import Field
from serving import arguments, run

JSON = dict[str, Any]
Context = ServerRequestContext[Any, Any]
TASKS = "io.modelcontextprotocol/tasks"
REQUIRED: JSON = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
ENTRY: JSON = {
    "createdAt": "2026-07-28T00:00:00Z",
    "lastUpdatedAt": "2026-07-28T00:00:00Z",
    "ttlMs": 60_000,
    "pollIntervalMs": 100,
}


class TaskParams(types.RequestParams):
    task_id: str = Field(alias="taskId")
    input_responses: JSON = Field(alias="inputResponses", default_factory=JSON)


class TaskServer:
    def __init__(self, log: str | None) -> None:
        self.log = log
        self.scripts: dict[str, list[JSON]] = {}
        self.answers: dict[str, JSON] = {}
        self.server: Server[Any] = Server(
            "tasks", on_list_tools=self.list_tools, on_call_tool=self.call
        )
        self.server.extensions = {TASKS: {}}
        for method, handler in (
            ("tasks/get", self.get),
            ("tasks/update", self.update),
            ("tasks/cancel", self.cancel),
        ):
            self.server.add_request_handler(method, TaskParams, handler)

    async def list_tools(self, ctx: Context, _: object) -> types.ListToolsResult:
        names = ["must", "may", *(["hidden"] if has_tasks(ctx) else [])]
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
        return types.ListToolsResult(tools=tools)

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> Any:
        if not has_tasks(ctx):
            if params.name == "must":
                raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Needs tasks", REQUIRED)
            return types.CallToolResult(content=[types.TextContent(text="without a task")])
        script: list[JSON] = (params.arguments or {})["script"]
        task_id = f"t{len(self.scripts)}"
        self.scripts[task_id], self.answers[task_id] = script[1:] or script, {}
        self.write(params.name, ctx, task_id)
        return {**ENTRY, "taskId": task_id, **script[0], "resultType": "task"}

    async def get(self, ctx: Context, params: TaskParams) -> JSON:
        script, answers = self.script(params), self.answers[params.task_id]
        self.write("tasks/get", ctx, params.task_id)
        is_answered = script[0].get("inputRequests", {}).keys() <= answers.keys()
        is_passed = len(script) > 1 and (is_answered or "once" in script[0])
        entry = script.pop(0) if is_passed else script[0]
        if "refuse" in entry:
            raise MCPError(entry["refuse"], f"Task {params.task_id} cannot be read")
        if entry.get("status") == "answers":
            text = {"type": "text", "text": json.dumps(answers)}
            entry = {"status": "completed", "result": {"content": [text]}}
        return {**ENTRY, "taskId": params.task_id, **entry}

    async def update(self, ctx: Context, params: TaskParams) -> JSON:
        self.script(params)
        self.write("tasks/update", ctx, params.task_id)
        self.answers[params.task_id] |= params.input_responses
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> JSON:
        self.script(params)
        self.write("tasks/cancel", ctx, params.task_id)
        return {}

    def script(self, params: TaskParams) -> list[JSON]:
        script = self.scripts.get(params.task_id)
        if script is None:
            raise MCPError(types.INVALID_PARAMS, f"Task {params.task_id} not found")
        return script

    def write(self, tool: str, ctx: Context, task_id: str) -> None:
        if not has_tasks(ctx):
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Needs tasks", REQUIRED)
        if self.log is None:
            return
        header = None if ctx.request is None else ctx.request.headers.get("mcp-name")
        entry = {"tool": tool, "task": task_id, "header": header, "time": time.time()}
        opened = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(opened, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(opened)


def has_tasks(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and TASKS in (capabilities.extensions or {})


if __name__ == "__main__":
    options = arguments(__doc__ or "").parse_args()
    run(TaskServer(options.log).server, options, dict)
