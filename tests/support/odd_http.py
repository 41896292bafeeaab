"""A counting MCP server over HTTP, in threads, whose answers a test bends: redirects, refusals, losses, cut streams.

Streamable HTTP is at /mcp/, HTTP+SSE at /sse.
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

JSON = dict[str, Any]
TEARS = ("end", "event", "chunk", "reset", "half", "half error", "half gzip", "nothing")
"""Torn answers: an event stream without an answer, with half of one, without its last chunk or with RST; half a body, which
can be no gzip although it is said to be."""
ENDS = ("cut", "reset", "end")
"""Ends of a stream: without its last chunk, with RST, properly."""
COUNTED: JSON = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict[str, str])


def page(status: int, **headers: str) -> Response:
    """Return an error page, as a proxy sends it."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, b"<html><h1>Sorry</h1></html>", "text/html", names)


def rpc_error(status: int, code: int, message: str, number: object = None, **more: Any) -> Response:
    error = {"code": code, "message": message, **more}
    return Response(status, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())


def tool(name: str, **more: Any) -> JSON:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


@dataclass
class OddServer:
    """The state of the server; a test changes it between requests."""

    era: Literal["legacy", "modern"] = "legacy"
    port: int = 0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """The count of each session. Clearing it makes the server forget them."""
    forgotten: Callable[[JSON], Response] = lambda message: page(404)
    """The answer to a message in a session that is not known."""
    refuse: Callable[[JSON], Response | None] = lambda message: None
    """The answer to a message that is refused before anything else; None lets it pass."""
    redirect: Callable[[str, str], Response | None] = lambda method, path: None
    """The redirect of a request, by method and path."""
    list_page: Callable[[str | None], JSON] | None = None
    """The page of `tools/list` for a cursor."""
    tear: Callable[[JSON], str | None] = lambda message: None
    """How the answer to a message is torn after it ran, a key of TEARS; None: not at all."""
    listening: Callable[[int], str | int] = lambda number: 405
    """How the stream of GET /mcp/ with a number ends: a key of ENDS, "hold" for none, or the status of its refusal."""
    pushed: queue.Queue[bytes] = field(default_factory=queue.Queue[bytes])
    """The events for the stream that is held. An empty one ends it."""
    instructions: str | None = None
    post_to_sse: int | None = None
    """The status of a POST to /sse. None: there is no HTTP+SSE."""
    requests: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """HTTP method, path, and method of the message of each request."""
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The headers of each POST, with their names in lower case."""
    streams: dict[str, queue.Queue[bytes]] = field(default_factory=dict[str, "queue.Queue[bytes]"])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp/"

    def count_of(self, method: str) -> int:
        """Return how many messages of a method arrived."""
        return sum(each[2] == method for each in self.requests)

    def answer(self, message: JSON, session: str) -> JSON:
        method: str = message["method"]
        result: JSON = {}
        if method == "tools/list":
            params: JSON = message.get("params") or {}
            result = self._list(params.get("cursor"))
        elif method == "tools/call":
            self.counts[session] = count = self.counts.get(session, 0) + 1
            text = json.dumps({"count": count})
            content = [{"type": "text", "text": text}]
            result = {"content": content, "structuredContent": {"count": count}}
        elif method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "odd", "version": "1"},
                **({"instructions": self.instructions} if self.instructions else {}),
            }
        elif method == "server/discover":
            result = {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            }
        return {"resultType": "complete", **result} if self.era == "modern" else result

    def _list(self, cursor: str | None) -> JSON:
        tools = [tool("inc"), tool("closed_inc", outputSchema=COUNTED)]
        fields = {"tools": tools} if self.list_page is None else self.list_page(cursor)
        return {"ttlMs": 0, "cacheScope": "private", **fields} if self.era == "modern" else fields


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    odd: OddServer

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_POST(self) -> None:
        message: JSON = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.odd.requests.append(("POST", self.path, message.get("method", "")))
        self.odd.headers.append({name.lower(): value for name, value in self.headers.items()})
        response, way = self._post(message), self.odd.tear(message)
        if way is None:
            self._respond(response)
        else:
            self._tear(way, response)

    def _tear(self, way: str, response: Response) -> None:
        self.close_connection = True
        if way != "nothing":
            self.send_response_only(500 if way == "half error" else 200)
            is_json = way.startswith("half")
            self.send_header("content-type", "application/json" if is_json else "text/event-stream")
            if way == "half gzip":
                self.send_header("content-encoding", "gzip")
            if is_json:
                self.send_header("content-length", str(len(response.body)))
            elif way == "chunk":
                self.send_header("transfer-encoding", "chunked")
            self.end_headers()
        half = response.body[: len(response.body) // 2]
        if way.startswith("half"):
            self.wfile.write(half)
        elif way == "event":
            self.wfile.write(b"event: message\ndata: " + half)
        elif way == "chunk":
            self.wfile.write(b"5\r\n: hi\n\r\n")
        elif way == "reset":
            self._reset()

    def _reset(self) -> None:
        """Close with RST."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _listen(self, end: str | int) -> None:
        if isinstance(end, int):
            self._respond(page(end))
            return
        self.close_connection = True
        self.send_response_only(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._chunk(b"retry: 1\n\n")
        while end == "hold" and (event := self.odd.pushed.get()):
            self._chunk(event)
        if end == "reset":
            self._reset()
        elif end == "end":
            self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def do_GET(self) -> None:
        self.odd.requests.append(("GET", self.path, ""))
        redirect = self.odd.redirect("GET", self.path)
        if redirect is not None:
            self._respond(redirect)
        elif self.path.rstrip("/") == "/sse" and self.odd.post_to_sse is not None:
            self._stream()
        else:
            gets = sum(each[0] == "GET" for each in self.odd.requests)
            self._listen(self.odd.listening(gets))

    def do_DELETE(self) -> None:
        self.odd.requests.append(("DELETE", self.path, ""))
        redirect = self.odd.redirect("DELETE", self.path)
        if redirect is None:
            self.odd.counts.pop(self.headers.get("mcp-session-id", ""), None)
        self._respond(redirect or Response(200))

    def _post(self, message: JSON) -> Response:
        odd, path = self.odd, urlsplit(self.path).path
        redirect = odd.redirect("POST", self.path)
        if redirect is not None:
            return redirect
        refusal = odd.refuse(message)
        if refusal is not None:
            return refusal
        if path == "/messages":
            return self._answer_in_stream(message)
        if path.rstrip("/") == "/sse" and odd.post_to_sse is not None:
            return page(odd.post_to_sse)
        if path != "/mcp/":
            return page(404)
        return self._answer(message)

    def _answer(self, message: JSON) -> Response:
        odd, method = self.odd, message.get("method")
        if "id" not in message or "method" not in message:
            return Response(202)
        modern = self.headers.get("mcp-protocol-version") == "2026-07-28"
        if modern != (odd.era == "modern"):
            return rpc_error(400, -32022 if method == "initialize" else -32601, "No", message["id"])
        session, headers = self.headers.get("mcp-session-id", ""), dict[str, str]()
        if method == "initialize":
            session = uuid.uuid4().hex
            odd.counts[session] = 0
            headers = {"mcp-session-id": session}
        elif odd.era == "legacy" and session not in odd.counts:
            return odd.forgotten(message)
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": odd.answer(message, session)}
        return Response(200, json.dumps(answer).encode(), headers=headers)

    def _answer_in_stream(self, message: JSON) -> Response:
        session = parse_qs(urlsplit(self.path).query)["session"][0]
        if session not in self.odd.streams:
            return self.odd.forgotten(message)
        if "id" in message:
            result = self.odd.answer(message, session)
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            self.odd.streams[session].put(b"data: " + json.dumps(answer).encode() + b"\n\n")
        return Response(202, b"Accepted", "text/plain")

    def _stream(self) -> None:
        session = uuid.uuid4().hex
        events = self.odd.streams[session] = queue.Queue[bytes]()
        events.put(f"event: endpoint\ndata: /messages?session={session}\n\n".encode())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        while event := events.get():
            try:
                self.wfile.write(event)
                self.wfile.flush()
            except OSError:
                return

    def _respond(self, response: Response) -> None:
        self.send_response_only(response.status)
        self.send_header("content-type", response.content_type)
        self.send_header("content-length", str(len(response.body)))
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.body)


@contextmanager
def odd_server(**settings: Any) -> Generator[OddServer]:
    """Run the server in threads until the block ends."""
    odd = OddServer(**settings)
    handler = type("Handler", (_Handler,), {"odd": odd})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        odd.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield odd
        finally:
            for events in (odd.pushed, *odd.streams.values()):
                events.put(b"")
            server.shutdown()
            thread.join(5)


__all__ = ["ENDS", "TEARS", "OddServer", "Response", "odd_server", "page", "rpc_error", "tool"]
