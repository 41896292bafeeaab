"""The MCP server of the demo and of the README: a notebook and a counter, without sessions. Stdio only.

    python -m statehold.server.demo_server

It keeps everything in the memory of its process. It speaks the protocol up to 2025-11-25 on the standard library
alone, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, cast

from ..sessions.json_codec import JSON

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602


class Refused(Exception):
    """Raised to answer a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error: JSON = {"code": code, "message": message}


def tool(name: str, description: str, /, *, read_only: bool = False, **arguments: JSON) -> JSON:
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": arguments, "required": list(arguments)},
        "annotations": {"readOnlyHint": read_only},
    }


TOOLS = [
    tool("count", "Count one further."),
    tool("write_note", "Write a note.", text={"type": "string"}),
    tool("read_notes", "Read all notes.", read_only=True),
    tool("set_notes", "Replace all notes.", notes={"type": "array", "items": {"type": "string"}}),
    tool("think", "Think for some seconds.", seconds={"type": "number"}),
]


class Notebook:
    """One client over stdin and stdout, until stdin ends."""

    def __init__(self) -> None:
        self.counted = 0
        self.notes: list[str] = []
        self._writing = threading.Lock()

    def run(self) -> None:
        for line in sys.stdin.buffer:
            try:
                message = _members(json.loads(line))
            except ValueError:
                continue
            if "method" in message and "id" in message:
                self._answer(message["id"], message["method"], _members(message.get("params")))

    def _answer(self, request: Any, method: str, params: JSON) -> None:
        try:
            if method == "tools/call" and params.get("name") == "think":
                self._think(request, params)
                return
            reply: JSON = {"result": self._result(method, params)}
        except Refused as refused:
            reply = {"error": refused.error}
        self._write({"id": request, **reply})

    def _result(self, method: str, params: JSON) -> JSON:
        if method == "initialize":
            wanted = params.get("protocolVersion")
            return {
                "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notebook", "version": "1.0.0"},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": TOOLS}
        if method == "tools/call":
            return self._call(str(params.get("name")), _members(params.get("arguments")))
        raise Refused(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _call(self, name: str, arguments: JSON) -> JSON:
        try:
            if name == "count":
                self.counted += 1
                return _told({"count": self.counted})
            if name == "write_note":
                self.notes.append(str(arguments["text"]))
            elif name == "set_notes":
                self.notes = [str(note) for note in arguments["notes"]]
            elif name != "read_notes":
                raise Refused(INVALID_PARAMS, f"Unknown tool: {name}")
        except KeyError as missing:
            return _wrong(f"{missing.args[0]} is missing.")
        except TypeError:
            return _wrong("notes should be a list of texts.")
        return _told({"notes": self.notes})

    def _think(self, request: Any, params: JSON) -> None:
        """Answer later. A caller who wants progress is notified of the start at once."""
        arguments, meta = _members(params.get("arguments")), _members(params.get("_meta"))
        try:
            seconds = max(0.0, min(float(arguments.get("seconds", 1)), threading.TIMEOUT_MAX))
        except (TypeError, ValueError, OverflowError):
            self._write({"id": request, "result": _wrong("seconds should be a number.")})
            return
        answer = {"id": request, "result": _told({"thought": "42"})}
        timer = threading.Timer(seconds, self._write, [answer])
        timer.daemon = True
        timer.start()
        token = meta.get("progressToken")
        if token is not None:
            begun: JSON = {"progressToken": token, "progress": 0, "message": "thinking"}
            self._write({"method": "notifications/progress", "params": begun})

    def _write(self, message: JSON) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self._writing:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def _members(found: Any) -> JSON:
    """Return an object; anything else that a client sent in its place has no members."""
    return cast(JSON, found) if isinstance(found, dict) else {}


def _wrong(problem: str) -> JSON:
    """Return a result, not a JSON-RPC error: a model reads it and can correct its call."""
    return {"content": [{"type": "text", "text": problem}], "isError": True}


def _told(found: JSON) -> JSON:
    """Return a result with the pid of the process that answered."""
    content = {**found, "pid": os.getpid()}
    return {
        "content": [{"type": "text", "text": json.dumps(content)}],
        "structuredContent": content,
        "isError": False,
    }


if __name__ == "__main__":
    Notebook().run()
