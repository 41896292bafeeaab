"""A small site to log in to: `python app.py [--port N]`, which prints `{"port": N}`.

Any name with the password `open sesame` gets in. Logging in sets an HttpOnly session cookie and, by script, the
localStorage value `site.note`. /me shows both; /counter counts clicks in the page alone, so it is lost with the page.
"""

from __future__ import annotations

import argparse
import json
import secrets
from html import escape
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

PASSWORD = "open sesame"
COOKIE = "site_session"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><link rel="icon" href="data:,"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - Harbour</title>
<style>
:root {{ color-scheme: light; --ink: #16302b; --sea: #1f7a8c; --sand: #f4efe6; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; min-height: 100vh; display: grid; place-items: center; color: var(--ink);
  font: 17px/1.5 system-ui, sans-serif;
  background: linear-gradient(160deg, #cfe8ef 0%, var(--sand) 60%); }}
main {{ width: min(26rem, 92vw); padding: 2rem 2.2rem; background: #fff; border-radius: 18px;
  box-shadow: 0 18px 50px #16302b22; }}
h1 {{ margin: 0 0 .3rem; font-size: 1.6rem; }} p {{ margin: .4rem 0 1rem; color: #48625d; }}
label {{ display: block; margin: .8rem 0 .2rem; font-weight: 600; }}
input {{ width: 100%; padding: .6rem .8rem; border: 1px solid #b9cbc7; border-radius: 10px; font: inherit; }}
button {{ margin-top: 1.2rem; padding: .6rem 1.3rem; border: 0; border-radius: 10px; background: var(--sea);
  color: #fff; font: inherit; font-weight: 600; cursor: pointer; }}
dl {{ display: grid; grid-template-columns: auto 1fr; gap: .35rem 1rem; margin: 1rem 0;
  }} dt {{ color: #6c827d; }} dd {{ margin: 0; font-weight: 600; }}
nav {{ margin-top: 1.4rem; padding-top: 1rem; border-top: 1px solid #e4ebe9; display: flex; gap: 1.2rem;
  align-items: center; }}
nav form button {{ margin: 0; padding: .35rem .9rem; background: #fff; color: var(--sea);
  border: 1px solid var(--sea); }}
a {{ color: var(--sea); }} .count {{ font-size: 3.4rem; font-weight: 700; line-height: 1;
  }} .wrong {{ color: #a4262c; }}
</style>
</head>
<body><main>{body}</main></body>
</html>
"""

LOGIN = """<h1>Harbour</h1><p>Log in to see your berth.</p>{problem}
<form method="post" action="/login">
<label for="name">Name</label><input id="name" name="name" autocomplete="username" required>
<label for="password">Password</label><input id="password" name="password" type="password" required>
<button>Log in</button>
</form>"""

ENTERED = """<h1>Welcome, {name}</h1><p>One moment.</p>
<script>localStorage.setItem("site.note", {note}); location.replace("/me");</script>"""

ME = """<h1>Logged in as {name}</h1><p>This is your berth.</p>
<dl><dt>Visits</dt><dd id="visits">{visits}</dd><dt>Note</dt><dd id="note">none</dd></dl>
<nav><a href="/counter">Counter</a><form method="post" action="/logout"><button>Log out</button></form></nav>
<script>document.getElementById("note").textContent = localStorage.getItem("site.note") || "none";</script>"""

STRANGER = """<h1>Not logged in</h1><p>Nobody is logged in here.</p><nav><a href="/login">Log in</a></nav>"""

LEFT = """<h1>Logged out</h1><p>See you soon.</p><nav><a href="/login">Log in</a></nav>
<script>localStorage.removeItem("site.note");</script>"""

COUNTER = """<h1>Counter</h1><p>It lives in this page and nowhere else.</p>
<div class="count" id="count" role="status">0</div>
<button onclick="document.getElementById('count').textContent = ++window.count">Count</button>
<nav><a href="/me">Back</a></nav><script>window.count = 0;</script>"""


class Visitor:
    """A user who is logged in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.visits = 0


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.visitors: dict[str, Visitor] = {}


class Handler(BaseHTTPRequestHandler):
    server: Site  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        visitor = self.visitor()
        if path == "/":
            self.redirect("/me" if visitor else "/login")
        elif path == "/login":
            self.page("Log in", LOGIN.format(problem=""))
        elif path == "/me" and visitor is not None:
            visitor.visits += 1
            self.page("Your berth", ME.format(name=escape(visitor.name), visits=visitor.visits))
        elif path == "/me":
            self.page("Not logged in", STRANGER, status=401)
        elif path == "/counter":
            self.page("Counter", COUNTER)
        else:
            self.page("Not found", "<h1>Not found</h1>", status=404)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        form = parse_qs(self.rfile.read(length).decode())
        if self.path == "/login":
            self.enter(form.get("name", [""])[0], form.get("password", [""])[0])
        elif self.path == "/logout":
            self.server.visitors.pop(self.token(), None)
            self.page(
                "Logged out", LEFT, cookie=f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
            )
        else:
            self.page("Not found", "<h1>Not found</h1>", status=404)

    def enter(self, name: str, password: str) -> None:
        if not name or password != PASSWORD:
            problem = '<p class="wrong" role="alert">Wrong name or password.</p>'
            self.page("Log in", LOGIN.format(problem=problem), status=403)
            return
        token = secrets.token_urlsafe(24)
        self.server.visitors[token] = Visitor(name)
        note = json.dumps(f"note of {name}").replace("<", "\\u003c")
        cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax"
        self.page("Welcome", ENTERED.format(name=escape(name), note=note), cookie=cookie)

    def visitor(self) -> Visitor | None:
        return self.server.visitors.get(self.token())

    def token(self) -> str:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        return cookie.value if cookie is not None else ""

    def page(self, title: str, body: str, *, status: int = 200, cookie: str = "") -> None:
        content = PAGE.format(title=title, body=body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        if cookie:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(content)

    def redirect(self, to: str) -> None:
        self.send_response(303)
        self.send_header("Location", to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    site = Site(parser.parse_args().port)
    print(json.dumps({"port": site.server_address[1]}), flush=True)  # noqa: T201
    site.serve_forever()


if __name__ == "__main__":
    main()
