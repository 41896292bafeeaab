"""Log in once, then read three pages at the same time, in three browsers that all have the login.

    uv run python examples/parallel_browsing.py

fork() makes children of a session: each has a browser of its own, with the cookies and the state that the parent had.
merge() brings what they wrote into their states into that of the parent. It all runs in this process and against a small
site on this machine.

The children have the same login, not logins of their own: a site that renews its cookie with each use, and takes an old one
for stolen, logs all of them out. Log in once in each child there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from statehold.client.sync import Session, connect

PRICES = {"tea": 3, "milk": 1, "honey": 7}


class Site(BaseHTTPRequestHandler):
    """Prices for those who are logged in."""

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name == "login":
            self.answer("<h1>Hello Ada</h1>", "Set-Cookie", "user=ada; HttpOnly")
        elif "user=ada" in self.headers.get("Cookie", "") and name in PRICES:
            self.answer(f"<h1>{PRICES[name]}</h1>", "Cache-Control", "no-store")
        else:
            self.answer("<h1>Log in first</h1>", "Cache-Control", "no-store")

    def answer(self, page: str, *header: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header(*header)
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def site() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def price(child: Session, url: str, item: str) -> None:
    """Read one price in a child and write it into the child's state."""
    child.call("browser_navigate", url=f"{url}/{item}")
    found = child.call(
        "browser_evaluate", function="() => document.querySelector('h1').textContent"
    )
    heading = json.loads(found.text.splitlines()[1])
    child.state.update({"prices": {item: int(heading)}})


with site() as url, connect() as client, client.session("prices", services=["browser"]) as parent:
    parent.call("browser_navigate", url=f"{url}/login")
    children = parent.fork(len(PRICES))
    with ThreadPoolExecutor() as threads:
        list(threads.map(price, children, [url] * len(children), PRICES))
    merged = parent.merge(children)
    print(f"{len(children)} browsers, {merged.conflict_count} conflicts")
    print(parent.state.get("/prices"))
