"""A site on every loopback address, each another origin, that keeps something in every place a browser has for it.

`with Keeping() as site: site.at(2)` is its address on 127.0.0.2. `hits` are the requests it saw. `close()` makes it go away.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

from served import Served, Server

EVERYTHING = """<!doctype html><meta charset="utf-8"><title>Everything</title>
<style>#box { height: 80px; overflow: auto } #long, #inner { height: 4000px }</style>
<form>
<input id="text" name="text" value="as sent"><input name="untouched" value="as sent">
<input id="mirrored" oninput="this.setAttribute('value', this.value)">
<input id="password" type="password"><input id="shown" name="password_again">
<input id="hidden" type="hidden" value="as sent">
<input id="card" autocomplete="billing cc-number"><input id="code" autocomplete="one-time-code">
<textarea id="area">as sent</textarea>
<select id="one"><option>a<option>b<option>c</select>
<select id="many" multiple><option selected>a<option>b<option>c</select>
<select id="month" autocomplete="cc-exp-month"><option>1<option>2</select>
<input type="checkbox" id="tick"><input type="checkbox" id="untick" checked>
<input type="radio" name="r" id="r1" checked><input type="radio" name="r" id="r2">
<input type="file" id="file">
</form>
<div id="editor" contenteditable>as sent</div><div id="other" contenteditable>as sent</div>
<div id="box"><div id="inner"></div></div>
<x-shadow></x-shadow><iframe id="frame" src="/framed"></iframe>
<div id="long"></div>
<script>
window.events = [];
for (const kind of ["input", "change"]) addEventListener(kind, e => events.push(kind + " " + e.target.id), true);
window.found = {
  state: history.state, session: sessionStorage.getItem("s"), local: localStorage.getItem("l"),
  type: performance.getEntriesByType("navigation")[0].type,
};
customElements.define("x-shadow", class extends HTMLElement {
  connectedCallback() { this.attachShadow({mode: "open"}).innerHTML = '<input id="deep">'; }
});
// As frameworks do: this field is there only after the page has loaded.
addEventListener("load", () => setTimeout(() => {
  const late = Object.assign(document.createElement("input"), {id: "late"});
  document.querySelector("form").append(late);
}, 30));
</script>"""

ACCOUNT = """<!doctype html><meta charset="utf-8"><title>Account</title><p id="who">...</p><script>
window.started = {local: localStorage.getItem("login"), session: sessionStorage.getItem("login"), cookie: document.cookie};
const opening = indexedDB.open("accounts", 1);
opening.onupgradeneeded = () => opening.result.createObjectStore("users");
opening.onsuccess = () => {
  const asked = opening.result.transaction("users").objectStore("users").get("login");
  asked.onsuccess = () => { window.started.database = asked.result ?? null; window.ready = true; };
};
</script>"""

HEAVY = """<!doctype html><title>Heavy</title><body><script>
document.body.innerHTML = '<input>'.repeat(20000);
for (const input of document.querySelectorAll("input")) input.value = "x".repeat(20);
for (let n = 0; n < 4; n++) sessionStorage.setItem("k" + n, "x".repeat(1200000));
</script>"""

WORKER = """addEventListener("install", () => skipWaiting());
addEventListener("activate", event => event.waitUntil(clients.claim()));
const page = "<title>Worker</title><script>localStorage.setItem('by', 'worker')</script>";
addEventListener("fetch", event => event.respondWith(new Response(page, {headers: {"Content-Type": "text/html"}})));"""

PAGES = {
    "/everything": EVERYTHING,
    "/account": ACCOUNT,
    "/heavy": HEAVY,
    "/framed": '<!doctype html><title>Framed</title><input id="framed">',
    "/plain": "<!doctype html><title>Plain</title><p>plain</p>",
    "/endless": "<!doctype html><title>Endless</title><p>endless</p>",
    "/onward": "<!doctype html><title>On</title><script>if (localStorage.out) location.replace('/plain')</script>",
    "/form": '<!doctype html><title>Form</title><form method="post" action="/answer"><button>Send</button></form>',
}


class Keeping(Served):
    """The site, served from threads inside `with`."""

    def __init__(self, port: int = 0) -> None:
        self.handler = _Handler
        self.fails = False
        """Whether it answers everything with 503."""
        self.gone: set[str] = set()
        """Paths that it does not know any more."""
        super().__init__(port)


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.note()
        if self.server.site.fails:
            self.answer(503, "<title>Away for a moment</title>")
        elif path == "/to":
            self.answer(302, "", location=unquote(query))
        elif path == "/worker.js":
            self.answer(200, WORKER, kind="text/javascript")
        elif path == "/answer":
            self.answer(405, "<title>Not allowed</title>")
        elif path in PAGES and path not in self.server.site.gone:
            self.answer(200, PAGES[path])
        else:
            self.answer(404, "<title>Not found</title>")

    def do_POST(self) -> None:
        self.note()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, "<title>Answer</title><p>thank you</p>")

    def note(self) -> None:
        if self.path == "/favicon.ico":
            return
        host = self.headers.get("Host", "").partition(":")[0]
        self.server.site.hits.append(f"{self.command} {host}{self.path}")

    def answer(
        self, status: int, body: str, *, kind: str = "text/html", location: str | None = None
    ) -> None:
        content = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


__all__ = ["Keeping"]
