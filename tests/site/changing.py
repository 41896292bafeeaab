"""A site whose pages a test writes, and may change while it is running.

`with Changing() as site: site.pages["/"] = "<p>"; site.url + "/"`. A page is a text, or what returns one. `hits` are the
requests it saw, and `held` the paths that are answered only when their event is set.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from served import Served, Server

HOLD_SECONDS = 60.0


class Changing(Served):
    def __init__(self) -> None:
        self.handler = _Handler
        self.pages: dict[str, str | Callable[[], str]] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.held: dict[str, threading.Event] = {}
        super().__init__()

    @property
    def url(self) -> str:
        return self.at(1)

    def close(self) -> None:
        for event in self.held.values():
            event.set()
        super().close()


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        site: Changing = self.server.site
        path = self.path.partition("?")[0]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path != "/favicon.ico":
            site.hits.append(f"{self.command} {self.path}")
        if path in site.held:
            site.held[path].wait(HOLD_SECONDS)
        page = site.pages.get(path)
        body = (page() if callable(page) else page or "").encode()
        headers = {"Content-Type": "text/html; charset=utf-8", **site.headers.get(path, {})}
        status = 404 if page is None else 302 if "Location" in headers else 200
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


__all__ = ["Changing"]
