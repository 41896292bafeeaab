"""One HTTP request to an ASGI application, without a server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import anyio
from starlette.types import ASGIApp, Message

from statehold.sessions.json_codec import JSON

Header = tuple[str, str]


@dataclass
class AsgiRequest:
    """One request over ASGI and its answer."""

    body: bytes
    headers: list[Header]
    method: str = "POST"
    path: str = "/mcp"
    user: object = None
    disconnected: anyio.Event = field(default_factory=anyio.Event)
    messages: list[Message] = field(default_factory=list[Message])
    has_body: anyio.Event = field(default_factory=anyio.Event)
    _read: bool = False

    async def of(self, app: ASGIApp) -> AsgiRequest:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in self.headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "user": self.user,
        }
        with anyio.fail_after(20):
            await app(scope, self.receive, self.send)
        return self

    async def receive(self) -> Message:
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        if message["type"] == "http.response.body":
            self.has_body.set()

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def type(self) -> str:
        return dict(self.messages[0]["headers"]).get(b"content-type", b"").decode()

    def header(self, name: str) -> str | None:
        value = dict(self.messages[0]["headers"]).get(name.encode())
        return None if value is None else value.decode()

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def result(self) -> JSON:
        return json.loads(self.text)["result"]

    @property
    def events(self) -> list[JSON]:
        """The messages of a stream, as far as it has come."""
        lines = self.text.split(b"\r\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]

    @property
    def answer(self) -> JSON:
        """Return the answer, as JSON or from the stream."""
        return self.events[-1] if self.type == "text/event-stream" else json.loads(self.text)
