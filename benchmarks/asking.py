"""Single tool calls of a 2026-07-28 client over plain HTTP, without a cache and without requests before the call."""

from __future__ import annotations

import json
from typing import Any, cast

import anyio
import httpx2

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "benchmarks", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(port: int, tool: str, arguments: dict[str, Any], *, path: str = "/mcp") -> bytes:
    """Return the HTTP request of a call as it is sent, for clients that send it many times."""
    body = _body(tool, arguments)
    headers = {"Host": f"127.0.0.1:{port}", **_headers(tool), "Content-Length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + body


def _body(tool: str, arguments: dict[str, Any], operation: str | None = None) -> bytes:
    meta = META if operation is None else {**META, "statehold/operation_id": operation}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(body).encode()


def _headers(tool: str) -> dict[str, str]:
    return {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }


class Asking:
    """Calls tools of one server. Use it as an async context manager; calls may run at the same time."""

    def __init__(self, port: int, seconds: float = 60.0) -> None:
        self.port = port
        self._url = f"http://127.0.0.1:{port}/mcp"
        self._seconds = seconds
        self._client = httpx2.AsyncClient(timeout=seconds, trust_env=False)

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def call(
        self, tool: str, arguments: dict[str, Any], operation: str | None = None
    ) -> dict[str, Any]:
        """Call a tool and return its structured content, or its whole result where it has none."""
        body, headers = _body(tool, arguments, operation), _headers(tool)
        response = await self._client.post(self._url, content=body, headers=headers)
        answer = cast("dict[str, Any]", response.json())
        result: dict[str, Any] = answer.get("result") or {}
        if response.status_code != 200 or result.get("isError"):
            raise RuntimeError(f"{tool}: {answer}")
        return result.get("structuredContent") or result

    async def first(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool of a server that is only just starting."""
        with anyio.fail_after(self._seconds):
            while True:
                try:
                    return await self.call(tool, arguments)
                except httpx2.TransportError:
                    await anyio.sleep(0.002)
