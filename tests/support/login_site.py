"""A site with one login, whose cookie stays, changes with each answer, or ends when an old one is used."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread

from support.page_server import serve_pages

Policy = Literal["fixed", "rotates", "reuse"]

POLLING = """<title>Shop</title><h1 id=who></h1><script>
  who.textContent = "WHO";
  window.answers = [];
  async function poll() {
    for (;;) {
      try { answers.push((await fetch("/api" + location.search)).status); } catch { answers.push(0); }
      await new Promise(done => setTimeout(done, 20));
    }
  }
  poll();
</script>"""
"""A page that asks every 20 ms whether it is still logged in."""

STATUSES = {"/login": 200, "/forbidden": 403, "/broken": 503}

STORMING = """<title>Shop</title><script>
  async function storm() {
    for (let number = 0;; number++) {
      if (number % 8 == 0) localStorage.token = `item-${crypto.randomUUID()}`;
      try { await fetch("/api", {method: "POST", body: localStorage.token}); } catch {}
    }
  }
  storm();
</script>"""
"""A page that changes its cookie all the time, and its storage often."""

WORKING = """<title>Shop</title><script>
  const code = `(async () => { for (;;) { try { await fetch(new URL("/api", "ORIGIN")); } catch {}
    await new Promise(done => setTimeout(done, 20)); } })()`;
  window.worker = new Worker(URL.createObjectURL(new Blob([code.replace("ORIGIN", location.origin)])));
</script>"""
"""A page whose worker does so."""


LEAKING = """<title>Shop</title><label>Field <input></label><script>
  const token = localStorage.token, headers = {authorization: "Bearer " + token};
  console.log("token", token);
  console.error(new Error(token));
  document.title = document.querySelector("input").value = sessionStorage.copy = token;
  document.body.append("token ", token, " SHOWN");
  const read = answer => answer.text();
  fetch("/api?token=" + encodeURIComponent(token), {headers}).then(read);
  fetch("/echo", {method: "POST", headers, body: JSON.stringify({token})}).then(read);
  history.replaceState(null, "", "?token=" + encodeURIComponent(token));
</script>"""
"""A page that spreads its cookie and its token over all that an agent may see."""


class Visit(NamedTuple):
    """A request with the cookie."""

    at: float
    port: str
    """That of the connection."""
    cookie: str
    by: str
    """The argument `by` of the address."""


@dataclass
class LoginSite:
    """The state of the site. All members may be read at any time."""

    policy: Policy = "reuse"
    address: str = ""
    token: str = "storage-token-of-ada"
    """The item `token` of its storage."""
    valid: str = ""
    """The valid cookie; empty when nobody is logged in."""
    used: set[str] = field(default_factory=set[str])
    statuses: list[int] = field(default_factory=list[int])
    """The status of each answer to a request with a cookie, and 0 for one without."""
    bodies: set[str] = field(default_factory=set[str])
    """The bodies of requests."""
    visits: list[Visit] = field(default_factory=list[Visit])
    body_seconds: float = 0.0
    """The seconds between the headers and the end of each answer."""
    hanging: threading.Event = field(default_factory=threading.Event)
    """Set to have /hang answer."""
    answered: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def log_in(self) -> str:
        """Begin a new login and return its cookie."""
        with self.lock:
            self.valid, self.used = f"login-{secrets.token_hex(16)}", set()
            return self.valid

    def use(self, cookie: str) -> tuple[int, str | None]:
        """Return the status of a request with a cookie, and the cookie that its answer sets."""
        self.answered.set()
        with self.lock:
            if not cookie:
                self.statuses.append(0)
                return 401, None
            if cookie != self.valid:
                if self.policy == "reuse" and cookie in self.used:
                    self.valid = ""
                self.statuses.append(401)
                return 401, None
            self.statuses.append(200)
            if self.policy == "fixed":
                return 200, None
            self.used.add(cookie)
            self.valid = f"login-{secrets.token_hex(16)}"
            return 200, self.valid

    async def wait_answers(self, count: int) -> None:
        """Wait until so many more requests were answered."""
        count += len(self.statuses)
        with anyio.fail_after(30):
            while len(self.statuses) < count:
                await anyio.to_thread.run_sync(self.answered.wait, 1.0)
                self.answered.clear()

    def state(self, cookie: str | None = None) -> dict[str, object]:
        """Return a storage state with the valid cookie."""
        host = urlsplit(self.address).hostname
        entry = {
            "name": "login",
            "value": cookie or self.valid,
            "domain": host,
            "path": "/",
            "expires": -1,
            "httpOnly": True,
            "secure": False,
            "sameSite": "Lax",
        }
        items = [{"name": "token", "value": self.token}]
        return {
            "cookies": [entry],
            "origins": [{"origin": self.address, "localStorage": items}],
        }


@contextmanager
def serve_logins(policy: Policy = "reuse") -> Generator[LoginSite]:
    """Serve a site until the block ends.

    /, /poll, /worker, /storm and /leaking are pages, /show and /echo show the new and the old cookie, /file is the old one.
    /in logs in, /out ends the login, /hang waits. /account leads to /login without a login, /forbidden and /broken answer
    403 and 503.
    """
    site = LoginSite(policy)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            header = self.headers.get("Cookie", "")
            match = re.search(r"(?:^|; )login=([^;]*)", header)
            cookie = match[1] if match else ""
            path = urlsplit(self.path).path
            if path == "/out":
                status, new = 200, "gone"
            elif path == "/in":
                status, new = 200, site.log_in()
            elif path == "/favicon.ico":
                status, new = 404, None
            elif path in STATUSES:
                status, new = STATUSES[path], None
            else:
                if cookie:
                    [by] = parse_qs(urlsplit(self.path).query).get("by", [""])
                    port = str(self.client_address[1])
                    site.visits.append(Visit(time.monotonic(), port, cookie, by))
                if path == "/hang":
                    site.hanging.wait(30)
                status, new = site.use(cookie)
            pages = {"/poll": POLLING, "/worker": WORKING, "/storm": STORMING}
            pages |= {"/leaking": LEAKING, "/file": "SHOWN"}
            shown = cookie if path in ("/echo", "/leaking", "/file") else ""
            if path == "/show":
                shown = new or cookie
            body = pages.get(path, "<title>Shop</title><h1>WHO</h1><p>SHOWN</p>")
            body = body.replace("SHOWN", shown).replace("WHO", "Ada" if status == 200 else "Log in")
            data = body.encode()
            if path == "/account" and status == 401:
                status = 302
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/login")
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Cache-Control", "no-store")
            if path == "/file":
                self.send_header("Content-Disposition", 'attachment; filename="shop.txt"')
            self.send_header("Content-Length", str(len(data)))
            if new is not None:
                self.send_header("Set-Cookie", f"login={new}; Path=/; HttpOnly; SameSite=Lax")
            self.end_headers()
            self.wfile.flush()
            if site.body_seconds:
                time.sleep(site.body_seconds)
            self.wfile.write(data)

        def do_POST(self) -> None:
            site.bodies.add(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None: ...

        def handle(self) -> None:
            # The browser may cut the connection.
            with suppress(OSError):
                super().handle()

    with serve_pages(Handler) as address:
        site.address = address
        try:
            yield site
        finally:
            site.hanging.set()
