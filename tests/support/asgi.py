"""One HTTP request to an ASGI application, without a server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import anyio
from starlette.types import ASGIApp, Message

from statehold.sessions.json_codec import JSON

Header = tuple[str, str]


@dataclass
class Asked:
    """One request over ASGI and its answer."""

    body: bytes
    headers: list[Header]
    method: str = "POST"
    user: object = None
    gone: anyio.Event = field(default_factory=anyio.Event)
    sent: list[Message] = field(default_factory=list[Message])
    said: anyio.Event = field(default_factory=anyio.Event)
    _read: bool = False

    async def of(self, app: ASGIApp) -> Asked:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
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
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.said.set()

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def type(self) -> str:
        return dict(self.sent[0]["headers"]).get(b"content-type", b"").decode()

    def header(self, name: str) -> str | None:
        found = dict(self.sent[0]["headers"]).get(name.encode())
        return None if found is None else found.decode()

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

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
