"""A client of 2026-07-28 that declares tasks, over Streamable HTTP and by hand: the SDK has no types for them."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import anyio.to_thread
import httpx2

from statehold.sessions.json_codec import JSON

from .waiting import until

VERSION = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
ENDED = ("completed", "failed", "cancelled")
ANSWER: JSON = {"action": "accept", "content": {"answer": "late"}}


@dataclass
class TaskClient:
    """One client. `capabilities` are declared with every request."""

    http: httpx2.AsyncClient
    url: str
    capabilities: JSON
    numbers: count[int]

    async def send(self, method: str, params: JSON) -> JSON:
        """Send one request and return its JSON-RPC answer."""
        message, headers = self._request(method, params)
        answer = await self.http.post(self.url, json=message, headers=headers)
        if answer.headers["content-type"].startswith("text/event-stream"):
            lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
            return json.loads(lines[-1].removeprefix("data: "))
        return answer.json()

    def _request(self, method: str, params: JSON) -> tuple[JSON, dict[str, str]]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            **params.get("_meta", {}),
        }
        message = {
            "jsonrpc": "2.0",
            "id": next(self.numbers),
            "method": method,
            "params": {**params, "_meta": meta},
        }
        name = params.get("name") or params.get("taskId") or params.get("uri")
        headers = {
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            **({} if name is None else {"mcp-name": name}),
            "accept": "application/json, text/event-stream",
        }
        return message, headers

    async def listen(self, tasks: list[str]) -> AsyncGenerator[JSON]:
        """Yield the messages of a `subscriptions/listen` request for tasks; the acknowledgement is the first."""
        body, headers = self._request("subscriptions/listen", {"notifications": {"taskIds": tasks}})
        async with self.http.stream("POST", self.url, json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line.removeprefix("data: "))

    async def result(self, method: str, params: JSON) -> JSON:
        answer = await self.send(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, tool: str, arguments: JSON, meta: Mapping[str, object] = {}) -> JSON:
        return await self.result(
            "tools/call", {"name": tool, "arguments": arguments, "_meta": meta}
        )

    async def session(self) -> str:
        return (await self.call("session_create", {}))["structuredContent"]["session_id"]

    async def get(self, task: str) -> JSON:
        return await self.result("tasks/get", {"taskId": task})

    async def end_of(self, task: str) -> JSON:
        """Return the task once it has ended."""

        async def ended() -> JSON | None:
            found = await self.get(task)
            return found if found["status"] in ENDED else None

        found = await until(ended)
        assert found is not None
        return found


@asynccontextmanager
async def task_client(
    url: str,
    *,
    tasks: bool = True,
    mode: str = "form",
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[TaskClient]:
    """Open a client of the server at `url`, which answers forms and declares tasks, unless told not to."""
    capabilities: JSON = {"elicitation": {mode: {}}}
    if tasks:
        capabilities["extensions"] = {TASKS: {}}
    async with httpx2.AsyncClient(headers=dict(headers or {}), timeout=60) as http:
        yield TaskClient(http, url, capabilities, count(1))


class Gate:
    """A pipe at which `hold` of the quick server waits until release()."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    async def release(self, refusal: str = "") -> None:
        """Let the call end; with a refusal, by a JSON-RPC error with that message."""
        await anyio.to_thread.run_sync(self.path.write_text, refusal)


__all__ = ["ANSWER", "ENDED", "TASKS", "Gate", "TaskClient", "task_client"]
