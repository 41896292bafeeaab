"""A site with the pages of twelve flows, each of which may be broken in some way, and with a clock that the site sets.

A mutation is broken on an address of its own: `with FlowSite(folder, ["shop-email"]) as site` serves the working site at
`site.url()`, and one that shows no address in its orders at `site.url("shop-email")`. The clock of a visitor goes on by 20
seconds whenever the page reads it; every second visitor comes shortly before midnight, some before the end of a month.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from served import Served, Server

PASSWORD: Final = "correct horse battery"
PIN: Final = "Zq8-violet-harbour-21"

STARTS: Final = (
    "2026-11-28T14:05:07Z",
    "2026-11-30T23:59:45Z",
    "2027-02-03T09:07:00Z",
    "2026-12-31T23:59:45Z",
)
"""The times of the visits, in turn."""

CLOCK: Final = """<script>
const RealDate = Date;
function now() {
  const time = Number(localStorage.time || RealDate.parse("%s"));
  localStorage.time = time + 20000;
  return time;
}
Date = class extends RealDate {
  constructor(...given) { given.length ? super(...given) : super(now()); }
  static now() { return now(); }
};
const say = text => { document.querySelector("[role=status]").textContent = text; };
const time = () => new Date().toLocaleTimeString("en-GB", { timeZone: "UTC" });
const day = () => new Date().toLocaleDateString("en-GB", { dateStyle: "full", timeZone: "UTC" });
const id = () => "A-" + Array.from(crypto.getRandomValues(new Uint8Array(3)), b => b.toString(16).padStart(2, "0")).join("");
</script>"""

PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>{title}</title>
{clock}<main><h1>{title}</h1>{body}<p role="status"></p></main></html>"""

Broken = Callable[[str], bool]
"""Whether a mutation is on."""


class FlowSite(Served):
    """The site. `folder` gets a database of its orders for each address."""

    def __init__(self, folder: Path, mutations: Sequence[str] = ()) -> None:
        self.handler = _Handler
        self.folder = folder
        self.mutations = list(mutations)
        self.visitors: dict[str, str] = {}
        """The start of the clock of each visitor."""
        for number in range(len(self.mutations) + 1):
            with contextlib.closing(sqlite3.connect(self.database_of(number))) as database:
                database.execute("create table orders (id text, email text, size text, cents int)")
                database.commit()
        super().__init__()

    def _number(self, mutation: str | None) -> int:
        return 0 if mutation is None else self.mutations.index(mutation) + 1

    def url(self, mutation: str | None = None) -> str:
        """The address of the site with a mutation, or without one."""
        return self.at(self._number(mutation) + 1)

    def database(self, mutation: str | None = None) -> Path:
        """The database of the orders at that address; a page of the flow `publish` is a file beside it."""
        return self.database_of(self._number(mutation))

    def database_of(self, number: int) -> Path:
        return self.folder / (f"orders-{number:02}.db" if number else "orders.db")


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def site(self) -> FlowSite:
        return self.server.site

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self._answer({name: values[0] for name, values in parse_qs(body).items()})

    def _answer(self, form: dict[str, str]) -> None:
        number = int(self.headers["Host"].partition(":")[0].rpartition(".")[2]) - 1
        mutation = self.site.mutations[number - 1] if number else ""
        visitor = SimpleCookie(self.headers.get("Cookie", "")).get("visitor")
        name = visitor.value if visitor else str(len(self.site.visitors))
        start = self.site.visitors.setdefault(name, STARTS[len(self.site.visitors) % len(STARTS)])
        pages = _Pages(mutation.__eq__, self.site.database_of(number), form)
        address = urlsplit(self.path)
        found = pages.page(address.path.strip("/"), parse_qs(address.query))
        if found.startswith("/"):
            self._send(303, b"", {"Location": found}, name)
        elif address.path.endswith((".json", ".txt")):
            self._send(200, found.encode(), {"Content-Type": "text/plain"}, name)
        else:
            title, _, body = found.partition("\n")
            html = PAGE.format(title=title, clock=CLOCK % start, body=body)
            self._send(200, html.encode(), {"Content-Type": "text/html; charset=utf-8"}, name)

    def _send(self, status: int, body: bytes, headers: dict[str, str], visitor: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Set-Cookie", f"visitor={visitor}; Path=/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Pages:
    """The pages at one address. A page is its title and, from the second line on, its body; `/path` leads elsewhere."""

    def __init__(self, broken: Broken, database: Path, form: dict[str, str]) -> None:
        self._broken = broken
        self._database = database
        self._form = form

    def page(self, name: str, query: dict[str, list[str]]) -> str:
        if name.startswith("order/"):
            return self._order(name.removeprefix("order/"))
        page: Callable[[], str] | None = getattr(self, f"_{name.partition('.')[0]}", None)
        return "Not found" if page is None else page()

    def _choose(self, mutation: str, broken: str, working: str) -> str:
        return broken if self._broken(mutation) else working

    def _shop(self) -> str:
        who = self._choose("shop-email", '"nobody"', "email.value")
        size = self._choose("shop-size", "'S'", "size.value")
        stored = self._choose("shop-stored", "'x@example.org'", "email.value")
        shown = self._choose(
            "shop-silent", "", f"say(`Order ${{order}} placed for ${{{who}}} at ${{time()}}`);"
        )
        return f"""Shop
<label>Email <input id="email"></label>
<label>Size <select id="size"><option>S<option>M<option>L</select></label>
<button onclick="place()">Place order</button><button>Place order later</button>
<script>async function place() {{
  const order = id();
  const row = new URLSearchParams({{ id: order, email: {stored}, size: {size}, cents: 320 }});
  await fetch("/store.json", {{ method: "POST", body: row }});
  {shown}
}}</script>"""

    def _store(self) -> str:
        with contextlib.closing(sqlite3.connect(self._database, timeout=20)) as database:
            row = [self._form[name] for name in ("id", "email", "size", "cents")]
            if not self._broken("stock-lost"):
                database.execute("insert into orders values (?, ?, ?, ?)", row)
            database.commit()
        return "{}"

    def _login(self) -> str:
        alert = ""
        if self._form:
            is_right = self._form["password"] == PASSWORD and not self._broken("login-refused")
            if is_right:
                return self._choose("login-place", "/account?new", "/account")
            alert = '<p role="alert">Wrong name or password</p>'
        return f"""Log in
<form method="post">{alert}<label>Name <input name="name"></label>
<label>Password <input type="password" name="password"></label><button>Log in</button></form>"""

    def _account(self) -> str:
        name = self._choose("login-name", "Bob", "Ada")
        balance = self._choose("login-balance", "112.50", "12.50")
        return f"""Account of {name}
<p>Balance: {balance} EUR</p>
<p>Last login: <span id="last"></span></p>
<script>last.textContent = day() + ", " + time()</script>"""

    def _pin(self) -> str:
        if self._form:
            is_right = self._form["pin"] == PIN and not self._broken("pin-refused")
            answer = "Door is open" if is_right else "Wrong code"
            answer = self._choose("pin-open", "Door stays shut", answer)
            return f"Door\n<h2>{answer}</h2>"
        return """Door
<form method="post"><label>Access code <input type="password" name="pin"></label><button>Open</button></form>"""

    def _cart(self) -> str:
        remove = self._choose("cart-stays", "", "this.closest('tr').remove();")
        total = self._choose("cart-total", "7.70", "3.20")
        count = self._choose("cart-count", "2 items", "1 item")
        button = f"""<button onclick="{remove} say('{count}, {total} EUR')">Remove</button>"""
        return f"""Cart
<table><tr><td>Tea<td>4.50<td>{button}<tr><td>Milk<td>3.20<td>{button}</table>"""

    def _notes(self) -> str:
        ask = self._choose("notes-asks", "true", "confirm('Delete the note ' + name + '?')")
        kept = self._choose("notes-kept", "", "note.remove();")
        said = self._choose("notes-silent", "", "say(`Deleted at ${time()}`);")
        return f"""Notes
<ul><li id="note">Milk and tea <button onclick="drop('Milk and tea')">Delete</button></ul>
<script>function drop(name) {{
  const note = document.getElementById("note");
  if ({ask}) {{ {kept} {said} }}
}}</script>"""

    def _preferences(self) -> str:
        plan = self._choose("preferences-plan", "'Basic'", "plan.value")
        news = self._choose("preferences-news", "'off'", "(news.checked ? 'on' : 'off')")
        name = self._choose("preferences-name", "''", "person.value")
        return f"""Preferences
<label>Display name <input id="person"></label>
<label><input type="checkbox" id="news"> Newsletter</label>
<label>Plan <select id="plan"><option>Basic<option>Pro</select></label>
<button onclick="say(`Saved for ${{{name}}}: newsletter ${{{news}}}, plan ${{{plan}}}, ` + day())">Save</button>"""

    def _search(self) -> str:
        return """Search
<form onsubmit="find(); return false"><label>Find <input id="words"></label></form><ul id="found"></ul>
<script>async function find() {
  say("Searching");
  const rows = await (await fetch("/results.json")).json();
  setTimeout(() => {
    found.innerHTML = rows.map(row => `<li>${row}</li>`).join("");
    say(`${rows.length} results in ${Math.round(performance.now() % 900) + 10} ms`);
  }, 300);
}</script>"""

    def _results(self) -> str:
        rows = ["Green tea, 4.50 EUR", "Black tea, 3.90 EUR"]
        if self._broken("search-one"):
            rows.pop()
        if self._broken("search-price"):
            rows[1] = "Black tea, 13.90 EUR"
        if self._broken("search-none"):
            rows.clear()
        return json.dumps(rows)

    def _invoice(self) -> str:
        word = self._choose("invoice-name", "receipt", "invoice")
        download = self._choose("invoice-none", "", "link.click();")
        said = self._choose("invoice-said", "Nothing to download", "Downloaded one page")
        return f"""Invoices
<button onclick="get()">Download invoice</button>
<script>function get() {{
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["Total: 3.20 EUR"]));
  link.download = "{word}-" + new Date().toISOString().slice(0, 10) + ".txt";
  {download} say("{said}");
}}</script>"""

    def _frame(self) -> str:
        return """Checkout
<iframe src="/pay" title="Payment" name="payment"></iframe>"""

    def _pay(self) -> str:
        amount = self._choose("frame-amount", "32.00", "3.20")
        card = self._choose("frame-card", "9999", "4242")
        said = self._choose(
            "frame-silent",
            "",
            f"say(`Paid {amount} EUR with ${{'*'.repeat(4)}}{card} at ${{time()}}`)",
        )
        return f"""Payment
<button onclick="{said}">Pay now</button>"""

    def _orders(self) -> str:
        return """Orders
<nav id="list"></nav>
<script>const order = localStorage.order ||= id();
list.innerHTML = `<a href="/order/${order}">Order ${order}</a> <a href="/shop">Shop</a>`;</script>"""

    def _order(self, order: str) -> str:
        state = self._choose("orders-state", "open", "paid")
        order = self._choose("orders-other", "of somebody", order)
        when = self._choose("orders-when", "never", "`on ${day()}`").replace("never", "'never'")
        return f"""Order {order}
<script>addEventListener("load", () => say("The order is {state}, delivery " + {when}))</script>"""

    def _publish(self) -> str:
        if self._form:
            text = self._choose("publish-text", "Closed", self._form["text"])
            if not self._broken("publish-file"):
                # At once, for readers meanwhile.
                part = self._database.with_suffix(f".{threading.get_ident()}")
                part.write_text(f"<h1>{text}</h1>\n")
                part.replace(self._database.with_suffix(".html"))
            state = self._choose("publish-state", "saved as a draft", "published")
            return f"Publisher\n<h2>The page is {state}</h2>"
        return """Publisher
<form method="post"><label>Text <textarea name="text"></textarea></label><button>Publish</button></form>"""

    def _stock(self) -> str:
        return f"""Stock
<label>Buyer <input id="buyer"></label>
<button onclick="take()">Take two</button>
<script>async function take() {{
  const row = new URLSearchParams({{ id: id().replace("A", "S"), email: buyer.value,
    size: "{self._choose("stock-size", "XS", "L")}", cents: {self._choose("stock-cents", "9000", "900")} }});
  await fetch("/store.json", {{ method: "POST", body: row }});
  say("Two were taken");
}}</script>"""


__all__ = ["PASSWORD", "PIN", "FlowSite"]
