"""A counting MCP server on the standard library alone: it starts in a twentieth of the time that the SDK needs.

For tests that start hundreds of processes, and the base of the misbehaving ones in bad.py. Stdio only, both eras:
`python quick.py [--era modern|legacy|both] [--log FILE]`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

TYPE_CHECKING = False
# Imports for the type checker and for a few tools would slow down hundreds of starts.
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from typing import Any, TypeAlias

    JSON: TypeAlias = dict[str, Any]
else:
    JSON = dict
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
MODERN = ["2026-07-28"]
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


class Refused(Exception):
    """Raised to answer a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error: JSON = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


def tool(name: str, schema: JSON | None = None, **hints: bool) -> JSON:
    described: JSON = {
        "name": name,
        "description": f"{name} of the quick server",
        "inputSchema": {"type": "object", "properties": schema or {}},
    }
    if hints:
        described["annotations"] = hints
    return described


class Quick:
    """One connection over stdin and stdout. Calls that take long run in threads; answers are written under a lock."""

    def __init__(self, log: str | None = None, era: str = "both") -> None:
        self.era = era
        self.log = log
        self.count = 0
        self.seen = 0
        self.cancelled: dict[Any, threading.Event] = {}
        self.threads: dict[Any, threading.Thread] = {}
        self.children: list[subprocess.Popen[bytes]] = []
        self.writing = threading.Lock()
        number: JSON = {"type": "number"}
        self.tools: list[JSON] = [
            tool("inc", {"n": {"type": "integer", "default": 1}}),
            tool("get", readOnlyHint=True),
            tool("echo", idempotentHint=True),
            tool("fail"),
            tool("slow", {"seconds": number}),
            tool("hang"),
            tool("hold", {"fifo": {"type": "string"}}),
            tool("crash"),
            tool("spawn"),
        ]

    def run(self) -> None:
        """Serve until stdin ends."""
        for line in sys.stdin.buffer:
            self.seen += 1
            message: JSON = json.loads(line)
            self.arrived(message)
            if "method" in message:
                self.handle(message)
        for request_id, cancelled in self.cancelled.items():
            if cancelled.is_set() and request_id in self.threads:
                # It writes its record before this process ends.
                self.threads[request_id].join()
        # Kept to the end: Python aborts a process that ends while a daemon thread writes.
        self.writing.acquire()

    def arrived(self, message: JSON) -> None:
        """Called with each message before it is handled."""

    def handle(self, message: JSON) -> None:
        if "id" not in message:
            self.notified(message["method"], message.get("params") or {})
            return
        params: JSON = message.get("params") or {}
        if message["method"] == "tools/call" and params.get("name") in {"slow", "hang", "hold"}:
            self.cancelled[message["id"]] = threading.Event()
            thread = threading.Thread(target=self.answer, args=(message, params), daemon=True)
            self.threads[message["id"]] = thread
            thread.start()
        else:
            self.answer(message, params)

    def answer(self, message: JSON, params: JSON) -> None:
        modern = VERSION_KEY in (params.get("_meta") or {})
        reply: JSON = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            result = self.request(message["method"], params, message["id"], modern)
            reply["result"] = {"resultType": "complete", **result} if modern else result
        except Refused as refusal:
            reply["error"] = refusal.error
        self.write(reply)

    def write(self, message: JSON) -> None:
        with self.writing:
            sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
            sys.stdout.buffer.flush()

    def notified(self, method: str, params: JSON) -> None:
        if method == "notifications/cancelled":
            event = self.cancelled.get(params.get("requestId"))
            if event is not None:
                event.set()

    def request(self, method: str, params: JSON, request_id: Any, modern: bool) -> JSON:
        if method == "initialize":
            return self.initialize(params)
        if method == "server/discover" and self.era != "legacy":
            return {
                "supportedVersions": MODERN,
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {
                "tools": self.tools,
                **({"ttlMs": 0, "cacheScope": "private"} if modern else {}),
            }
        if method == "tools/call":
            self.record(params)
            return self.call(str(params["name"]), params.get("arguments") or {}, params, request_id)
        raise Refused(-32601, "Method not found")

    def initialize(self, params: JSON) -> JSON:
        requested = params.get("protocolVersion")
        if self.era == "modern":
            raise Refused(
                -32022,
                "Unsupported protocol version",
                {"supported": MODERN, "requested": requested},
            )
        return {
            "protocolVersion": requested if requested in LEGACY else LEGACY[-1],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "quick", "version": "1.0"},
        }

    def call(self, name: str, arguments: JSON, params: JSON, request_id: Any) -> JSON:
        function: Callable[..., JSON] | None = getattr(self, f"tool_{name}", None)
        if function is None:
            raise Refused(-32602, f"Unknown tool: {name}")
        return function(arguments, params, request_id)

    def tool_inc(self, arguments: JSON, *_: object) -> JSON:
        self.count += int(arguments.get("n", 1))
        return self.tool_get()

    def tool_get(self, *_: object) -> JSON:
        return text(str(self.count), {"count": self.count, "pid": os.getpid()})

    def tool_echo(self, arguments: JSON, params: JSON, _: object) -> JSON:
        received = {"arguments": arguments, "_meta": params.get("_meta")}
        return text(json.dumps(received), received)

    def tool_fail(self, *_: object) -> JSON:
        return {**text("it failed"), "isError": True}

    def tool_slow(self, arguments: JSON, params: JSON, request_id: Any) -> JSON:
        meta: JSON = params.get("_meta") or {}
        token = meta.get("progressToken")
        for step in range(1, 6):
            if self.cancelled[request_id].wait(float(arguments.get("seconds", 1)) / 5):
                self.record(params, event="cancelled")
                raise Refused(-32800, "Request cancelled")
            if token is not None:
                progress: JSON = {"progressToken": token, "progress": step, "total": 5}
                self.write(
                    {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
                )
        return text(str(arguments.get("result", "done")))

    def tool_hang(self, _given: JSON, params: JSON, request_id: Any) -> JSON:
        self.cancelled[request_id].wait()
        self.record(params, event="cancelled")
        raise Refused(-32800, "Request cancelled")

    def tool_hold(self, arguments: JSON, *_: object) -> JSON:
        with open(arguments["fifo"]) as fifo:
            refusal = fifo.read()
        if refusal:
            raise Refused(-32077, refusal, {"why": "it is late"})
        return text("held")

    def tool_crash(self, *_: object) -> JSON:
        sys.stderr.write("quick: crashing as asked\n")
        sys.stderr.flush()
        os._exit(3)

    def tool_spawn(self, *_: object) -> JSON:
        import subprocess

        null = subprocess.DEVNULL
        self.children.append(subprocess.Popen(["sleep", "3600"], stdin=null, stdout=null))
        return text(
            str(self.children[-1].pid), {"pid": self.children[-1].pid, "parent": os.getpid()}
        )

    def record(self, params: JSON, **more: object) -> None:
        if self.log is None:
            return
        line = {
            "time": time.time(),
            "pid": os.getpid(),
            "tool": params.get("name"),
            "arguments": params.get("arguments"),
            "_meta": params.get("_meta"),
            **more,
        }
        opened = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(opened, json.dumps(line).encode() + b"\n")
        finally:
            os.close(opened)


def text(value: str, structured: object = None) -> JSON:
    result: JSON = {"content": [{"type": "text", "text": value}]}
    if structured is not None:
        result["structuredContent"] = structured
    return result


def option(arguments: list[str], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments else None


if __name__ == "__main__":
    given = sys.argv[1:]
    Quick(option(given, "--log"), option(given, "--era") or "both").run()
