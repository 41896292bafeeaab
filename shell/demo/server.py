"""The MCP server of the demo and of the README: a notebook and a counter, without sessions. Stdio only.

    python -m statehold.shell.demo.server

It keeps everything in the memory of its process. It speaks the protocol up to 2025-11-25 on the standard library
alone, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any, cast

from ...sessions.json_codec import JSON

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
END = f"end-{os.getpid()}"
"""The line that ends the output of a command."""


class RequestError(Exception):
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
    tool(
        "shell",
        "Run a line in a shell that lives as long as the notebook.",
        line={"type": "string"},
    ),
    tool("think", "Think for some seconds.", seconds={"type": "number"}),
]


class Notebook:
    """One client over stdin and stdout, until stdin ends."""

    def __init__(self) -> None:
        self.count = 0
        self.notes: list[str] = []
        self._shell: subprocess.Popen[str] | None = None
        self._writing = threading.Lock()

    def run(self) -> None:
        for line in sys.stdin.buffer:
            try:
                message = _as_object(json.loads(line))
            except ValueError:
                continue
            if "method" in message and "id" in message:
                self._answer(message["id"], message["method"], _as_object(message.get("params")))
        # Kept to the end: Python aborts a process that ends while a daemon thread writes.
        self._writing.acquire()

    def _answer(self, request: Any, method: str, params: JSON) -> None:
        try:
            if method == "tools/call" and params.get("name") == "think":
                self._think(request, params)
                return
            reply: JSON = {"result": self._result(method, params)}
        except RequestError as error:
            reply = {"error": error.error}
        self._write({"id": request, **reply})

    def _result(self, method: str, params: JSON) -> JSON:
        if method == "initialize":
            version = params.get("protocolVersion")
            return {
                "protocolVersion": version if version in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notebook", "version": "1.0.0"},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": TOOLS}
        if method == "tools/call":
            return self._call(str(params.get("name")), _as_object(params.get("arguments")))
        raise RequestError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _call(self, name: str, arguments: JSON) -> JSON:
        try:
            if name == "count":
                self.count += 1
                return _success({"count": self.count})
            if name == "shell":
                return _success({"output": self._run(str(arguments["line"]))})
            if name == "write_note":
                self.notes.append(str(arguments["text"]))
            elif name == "set_notes":
                self.notes = [str(note) for note in arguments["notes"]]
            elif name != "read_notes":
                raise RequestError(INVALID_PARAMS, f"Unknown tool: {name}")
        except KeyError as error:
            return _failure(f"{error.args[0]} is missing.")
        except TypeError:
            return _failure("notes should be a list of texts.")
        return _success({"notes": self.notes})

    def _run(self, line: str) -> str:
        """Return the output of a line, errors included. Other calls wait for its end."""
        if self._shell is None or self._shell.poll() is not None:
            self._shell = subprocess.Popen(
                ["sh"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                bufsize=1,
            )
        shell = self._shell
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(f"{line}\necho; echo {END}\n")
        shell.stdin.flush()
        output: list[str] = []
        for text in shell.stdout:
            if text == f"{END}\n":
                break
            output.append(text)
        return "".join(output).strip()

    def _think(self, request: Any, params: JSON) -> None:
        """Answer later. A caller who wants progress is notified of the start at once."""
        arguments, meta = _as_object(params.get("arguments")), _as_object(params.get("_meta"))
        try:
            seconds = max(0.0, min(float(arguments.get("seconds", 1)), threading.TIMEOUT_MAX))
        except (TypeError, ValueError, OverflowError):
            self._write({"id": request, "result": _failure("seconds should be a number.")})
            return
        answer = {"id": request, "result": _success({"thought": "42"})}
        timer = threading.Timer(seconds, self._write, [answer])
        timer.daemon = True
        timer.start()
        token = meta.get("progressToken")
        if token is not None:
            progress: JSON = {"progressToken": token, "progress": 0, "message": "thinking"}
            self._write({"method": "notifications/progress", "params": progress})

    def _write(self, message: JSON) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self._writing:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def _as_object(value: Any) -> JSON:
    """Return an object; anything else that a client sent in its place has no members."""
    return cast(JSON, value) if isinstance(value, dict) else {}


def _failure(problem: str) -> JSON:
    """Return a result, not a JSON-RPC error: a model reads it and can correct its call."""
    return {"content": [{"type": "text", "text": problem}], "isError": True}


def _success(content: JSON) -> JSON:
    """Return a result with the pid of the process that answered."""
    content = {**content, "pid": os.getpid()}
    return {
        "content": [{"type": "text", "text": json.dumps(content)}],
        "structuredContent": content,
        "isError": False,
    }


if __name__ == "__main__":
    Notebook().run()
