"""The site of the demo: a page that wants a login, and knows its visitor by a cookie afterwards."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

PASSWORD: Final = "open sesame"
OUTSIDE, INSIDE = "Log in", "Logged in as ada"
"""The titles of the page, without and with the cookie."""
PAGE: Final = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>{0}</title>
<style>body{{font:18px/1.6 system-ui;margin:3em}}input,button{{font:inherit;padding:.3em .8em}}</style>
<h1>{0}</h1><form method="post">{1}</form>"""
LOGIN: Final = '<input id="password" name="password" type="password"> <button>Log in</button>'
CART: Final = "<p>Notebooks in the cart: {0}</p><button>Add one</button>"


class Site(BaseHTTPRequestHandler):
    """One request. All visitors share the cart."""

    cookie = f"visitor={secrets.token_hex(8)}"
    cart = 0

    def do_GET(self) -> None:
        inside = self._is_inside()
        title, form = (INSIDE, CART.format(Site.cart)) if inside else (OUTSIDE, LOGIN)
        self._answer(200, PAGE.format(title, form).encode(), "Content-Type", "text/html")

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        Site.cart += self._is_inside()
        if form == f"password={PASSWORD.replace(' ', '+')}":
            self._answer(303, b"", "Location", "/", "Set-Cookie", f"{self.cookie}; HttpOnly")
        else:
            self._answer(303, b"", "Location", "/")

    def _is_inside(self) -> bool:
        return self.cookie in self.headers.get("Cookie", "")

    def _answer(self, status: int, page: bytes, *headers: str) -> None:
        self.send_response(status)
        for name, value in zip(headers[::2], headers[1::2], strict=True):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serve_site() -> Generator[str]:
    """Serve the site on loopback in a thread while the block runs; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
