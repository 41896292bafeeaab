"""A receiver of webhooks on a loopback port, which checks signatures as Standard Webhooks says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from statehold.sessions.json_codec import JSON

SECRET = "whsec_" + base64.b64encode(b"a secret of a receiver, 32 bytes").decode()


@dataclass
class Delivered:
    """One request that the receiver has accepted."""

    headers: dict[str, str]
    body: str

    @property
    def event(self) -> JSON:
        return json.loads(self.body)

    def is_signed(self, secret: str) -> bool:
        """Whether one of the signatures is by a secret."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.{self.body}"
        digest = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
        return f"v1,{digest}" in self.headers["webhook-signature"].split()


class EventReceiver(ThreadingHTTPServer):
    """Answers challenges, and notes every event that it takes. `status` is what it answers to events."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook"
        self.status = 204
        self.answers_challenge = True
        self.answers_without_end = False
        self.released = threading.Event()
        """Unset: requests with an event get no answer."""
        self.released.set()
        self.challenges = 0
        self.requests = 0
        self.delivered: list[Delivered] = []

    def ids(self) -> list[str]:
        return [each.event["eventId"] for each in self.delivered]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast("EventReceiver", self.server)
        server.requests += 1
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        document = json.loads(body)
        if document.get("type") == "verification":
            server.challenges += 1
            challenge = document["challenge"] if server.answers_challenge else "another"
            self._answer(200, json.dumps({"challenge": challenge}).encode())
            return
        server.released.wait(30)
        if server.status < 300:
            headers = {key.lower(): value for key, value in self.headers.items()}
            server.delivered.append(Delivered(headers, body))
        if server.answers_without_end:
            self.send_response(server.status)
            self.end_headers()
            with suppress(OSError):
                while server.released.is_set():
                    self.wfile.write(bytes(65_536))
            return
        self._answer(server.status)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("location", cast("EventReceiver", self.server).url)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def event_receiver() -> Generator[EventReceiver]:
    """Run a receiver until the block ends."""
    with EventReceiver() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield running
        finally:
            running.released.set()
            running.shutdown()
            thread.join()


__all__ = ["SECRET", "Delivered", "EventReceiver", "event_receiver"]
