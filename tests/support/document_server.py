"""A server of client metadata documents on a loopback port."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

REDIRECTS = ["http://127.0.0.1/callback", "https://app.example.org/back"]


class DocumentServer(ThreadingHTTPServer):
    """Serves one answer at every path, and counts the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/client.json"
        self.requests = 0
        self.status, self.headers, self.body = 200, dict[str, str](), b""

    def serve(self, **changes: object) -> None:
        document = {"client_id": self.url, "redirect_uris": REDIRECTS, **changes}
        self.status, self.headers, self.body = 200, {}, json.dumps(document).encode()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = cast("DocumentServer", self.server)
        server.requests += 1
        self.send_response(server.status)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def document_server() -> Generator[DocumentServer]:
    """Serve a good document until the block ends."""
    with DocumentServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        running.serve()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


__all__ = ["REDIRECTS", "DocumentServer", "document_server"]
