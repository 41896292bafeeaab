"""A legacy session over Streamable HTTP, on the fast path and through the SDK alone, without a server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from statehold.server.http.exchange import PING_SECONDS
from statehold.server.http.fast_path import FastPath
from statehold.server.protocol.server import StateholdServer

from .asgi import JSON, AsgiRequest

VERSION = "2025-06-18"


@dataclass
class Door:
    """The fast path and the SDK's application, in one session of Streamable HTTP."""

    mcp_server: StateholdServer
    manager: StreamableHTTPSessionManager
    ping_seconds: float = PING_SECONDS
    session: str = ""
    user: object = None
    passed: list[bytes] = field(default_factory=list[bytes])
    """The bodies that the SDK has read."""

    def __post_init__(self) -> None:
        self.sdk = StreamableHTTPASGIApp(self.manager)
        self.direct = FastPath(
            self._noted, self.mcp_server, self.manager, ping_seconds=self.ping_seconds
        )

    async def _noted(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noted() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                self.passed.append(message["body"])
            return message

        await self.sdk(scope, noted, send)

    def post(self, message: object, *, session: str | None = None, **headers: str) -> AsgiRequest:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        fields = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
            "mcp-protocol-version": VERSION,
            "mcp-session-id": self.session if session is None else session,
        }
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        return AsgiRequest(body, [(k, v) for k, v in fields.items() if v], user=self.user)

    def call(
        self, tool: str, arguments: JSON, meta: JSON | None = None, **changes: Any
    ) -> AsgiRequest:
        params: JSON = {"name": tool, "arguments": arguments}
        if meta is not None:
            params["_meta"] = meta
        return self.post(request("tools/call", params, **changes))

    async def enter(self, **capabilities: JSON) -> None:
        self.passed.clear()
        info = {"name": "tests", "version": "1"}
        hello = {"protocolVersion": VERSION, "clientInfo": info, "capabilities": capabilities}
        opening = await self.post(request("initialize", hello), session="").of(self.sdk)
        self.session = opening.header("mcp-session-id") or ""
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.post(done).of(self.sdk)
        with anyio.fail_after(10):
            while self.mcp_server.connection(self.session) is None:
                await anyio.lowlevel.checkpoint()

    async def leave(self) -> AsgiRequest:
        asking = self.post(b"")
        asking.method = "DELETE"
        return await asking.of(self.direct)


def request(method: str, params: JSON, **changes: Any) -> JSON:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **changes}
