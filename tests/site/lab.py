"""Everything a browser meets, on one local site: `python lab.py [--port N]`, which prints `{"port": N}`.

In a test: `with Lab() as lab: lab.url`. `lab.other` is the same site under another host, 127.0.0.2. A path with
`gate=NAME` is answered after `lab.open(NAME)` or a request for /api/open/NAME, so nothing depends on time; `lab.hits` are
the requests seen so far, and `lab.sent` is what its forms were sent with.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

import lab_pages as pages
from hits import Hits

HOST = "127.0.0.1"
OTHER_HOST = "127.0.0.2"
GATE_SECONDS = 60.0
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_WEBSOCKET_KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Lab:
    """The site, served from threads between `start()` and `stop()`, or inside `with`."""

    def __init__(self, port: int = 0) -> None:
        self.hits = Hits()
        """`METHOD host/path?query` of every request, in the order of arrival."""
        self.sent: list[tuple[str, list[tuple[str, str]]]] = []
        """The path and the fields of every form that was sent; of a file its size and digest."""
        self.stopped = threading.Event()
        self._gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self._servers = _listen(port, self)
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            for server in self._servers
        ]

    @property
    def port(self) -> int:
        return self._servers[0].server_address[1]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def other(self) -> str:
        """The site under another host; the same as `url` where there is only one loopback address."""
        return f"http://{OTHER_HOST if len(self._servers) > 1 else HOST}:{self.port}"

    def open(self, gate: str) -> None:
        """Release everything that waits for this gate, now and later."""
        self._gates[gate].set()

    def pass_gate(self, gate: str) -> None:
        """Wait until the gate is open, or the site stops."""
        ends = time.monotonic() + GATE_SECONDS
        while time.monotonic() < ends and not self._gates[gate].wait(0.05):
            if self.stopped.is_set():
                return

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop serving, also the requests under way. May be called twice."""
        self.stopped.set()
        for server, thread in zip(self._servers, self._threads, strict=True):
            if thread.is_alive():
                server.shutdown()
                thread.join()
            server.server_close()

    def __enter__(self) -> Lab:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, lab: Lab) -> None:
        self.lab = lab
        super().__init__((host, port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing, because browsers that disconnect are expected here."""


def _listen(port: int, lab: Lab) -> list[Server]:
    """Listen on both hosts with one port, or on the first alone where the second does not exist."""
    for _ in range(20):
        first = Server(HOST, port, lab)
        try:
            return [first, Server(OTHER_HOST, first.server_address[1], lab)]
        except OSError as error:
            if error.errno is None or "requested address" in str(error).lower():
                return [first]
            first.server_close()
    raise OSError("no port is free on both hosts")


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.note()
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if "gate" in query:
            self.server.lab.pass_gate(query["gate"])
        if parts.path in pages.PAGES:
            title, body = pages.PAGES[parts.path]
            body = body.replace("{other}", self.server.lab.other).replace(
                "{secret}", self.cookie("lab_secret")
            )
            self.answer(pages.page(title, body))
            return
        for prefix, respond in ROUTES:
            if parts.path == prefix or (prefix.endswith("/") and parts.path.startswith(prefix)):
                respond(self, parts.path.removeprefix(prefix), query)
                return
        self.answer(pages.page("Not found", "<p>There is no such page.</p>"), status=404)

    def do_POST(self) -> None:
        self.note()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/upload":
            self.echo("Uploaded", _files(self.headers.get("Content-Type", ""), body))
        elif self.path == "/form":
            self.echo("Sent", parse_qsl(body.decode(), keep_blank_values=True))
        else:
            self.answer(body, kind="application/octet-stream")

    def echo(self, title: str, fields: list[tuple[str, str]]) -> None:
        self.server.lab.sent.append((self.path, fields))
        self.answer(pages.echoed(title, fields))

    def note(self) -> None:
        self.server.lab.hits.append(
            f"{self.command} {self.headers.get('Host', '').partition(':')[0]}{self.path}"
        )

    def cookie(self, name: str) -> str:
        pairs = [part.strip().partition("=") for part in self.headers.get("Cookie", "").split(";")]
        return next((value for key, _, value in pairs if key == name), "nobody")

    def answer(
        self,
        content: bytes,
        *,
        status: int = 200,
        kind: str = "text/html; charset=utf-8",
        **headers: str,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content_Type": kind, "Cache_Control": "no-store", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


Query = dict[str, str]
Respond = Callable[[Handler, str, Query], None]


def _index(handler: Handler, rest: str, query: Query) -> None:
    if rest:
        handler.answer(pages.page("Not found", "<p>There is no such page.</p>"), status=404)
    else:
        handler.answer(pages.index())


def _frame(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(pages.frame(query.get("name", "plain")))


def _many(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(pages.many(int(query.get("refs", "1600"))))


def _huge(handler: Handler, rest: str, query: Query) -> None:
    """Answer with `kb` kilobytes of text; the default of 500 MB is too much to render. With `silent` the answer has no
    length, and with `half=NAME` its second half waits until that gate is open.
    """
    left = int(query.get("kb", "500000"))
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html; charset=utf-8")
    silent = "silent" in query
    handler.send_header(
        *(("Connection", "close") if silent else ("Content-Length", str(left * 1024)))
    )
    handler.end_headers()
    handler.close_connection = silent
    line = (b"<p>" + b"all work and no play " * 48).ljust(1024)
    for number in range(left):
        if number == left // 2 and "half" in query:
            handler.server.lab.pass_gate(query["half"])
        handler.wfile.write(line)


def _status(handler: Handler, rest: str, query: Query) -> None:
    status = int(rest) if rest.isdecimal() else 400
    handler.answer(pages.page(f"Status {status}", f"<p>This is {status}.</p>"), status=status)


def _redirect(handler: Handler, rest: str, query: Query) -> None:
    """To `to`, after `times` more of the same."""
    times, to = int(query.get("times", "0")), query.get("to", "/frame?name=redirected")
    if times > 0:
        to = f"/redirect?times={times - 1}&to={quote(to, safe='')}"
    handler.answer(b"", status=int(query.get("status", "302")), Location=to)


def _loop(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(b"", status=302, Location="/loop")


def _file(handler: Handler, rest: str, query: Query) -> None:
    """A download: any name is a small one, `endless` is that, `broken` ends before it should.

    With `half=NAME` its second half waits until that gate is open.
    """
    handler.send_response(200)
    handler.send_header("Content-Type", "application/octet-stream")
    # Else a browser reads a kilobyte before it knows that this is a download.
    handler.send_header("X-Content-Type-Options", "nosniff")
    handler.send_header("Content-Disposition", f'attachment; filename="{rest}.txt"')
    if rest == "endless":
        handler.send_header("Connection", "close")
        handler.end_headers()
        while not handler.server.lab.stopped.is_set():
            handler.wfile.write(b"for ever and ever\n" * 3641)
        return
    content = f"the {rest} file\n".encode()
    handler.send_header("Content-Length", str(len(content) + (1000 if rest == "broken" else 0)))
    handler.end_headers()
    middle = len(content) // 2 if "half" in query else len(content)
    handler.wfile.write(content[:middle])
    if "half" in query:
        handler.server.lab.pass_gate(query["half"])
    handler.wfile.write(content[middle:])
    handler.close_connection = rest == "broken"


def _slow(handler: Handler, rest: str, query: Query) -> None:
    time.sleep(int(query.get("ms", "200")) / 1000)
    handler.answer(b"slowly", kind="text/plain")


def _picture(handler: Handler, rest: str, query: Query) -> None:
    time.sleep(int(query.get("ms", "0")) / 1000)
    handler.answer(PIXEL, kind="image/png")


def _forget(handler: Handler, rest: str, query: Query) -> None:
    """Make the browser clear the site's data, as at a logout. Some of this data is the proxy's."""
    handler.answer(pages.page("Forgotten", "<p>Bye.</p>"), Clear_Site_Data='"*"')


def _keeping(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(pages.page("Keeping", '<script src="/kept.js"></script>'))


def _kept(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(b"// kept", kind="text/javascript", Cache_Control="max-age=600")


def _slow_page(handler: Handler, rest: str, query: Query) -> None:
    """Answers at once with `ms`; its picture comes that much later."""
    ms = int(query.get("ms", "200"))
    handler.answer(pages.page("Slow page", pages.SLOW_PAGE.replace("{ms}", str(ms))))


def _gate(handler: Handler, rest: str, query: Query) -> None:
    handler.server.lab.pass_gate(rest)
    handler.answer(b"through the gate", kind="text/plain")


def _open(handler: Handler, rest: str, query: Query) -> None:
    handler.server.lab.open(rest)
    handler.answer(b"open", kind="text/plain")


def _items(handler: Handler, rest: str, query: Query) -> None:
    after = int(query.get("after", "0"))
    items = [f"Item {n + 1}" for n in range(after, min(after + 20, 200))]
    handler.answer(json.dumps(items).encode(), kind="application/json")


def _headers(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(json.dumps(dict(handler.headers.items())).encode(), kind="application/json")


def _enter(handler: Handler, rest: str, query: Query) -> None:
    cookie = f"lab_secret={quote(query.get('name', 'ada'))}; Path=/; HttpOnly; SameSite=Lax"
    handler.answer(b"", status=303, Location="/logins", Set_Cookie=cookie)


def _routes(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(pages.page("Routes", pages.ROUTES))


def _search(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(pages.search(query.get("q", "")))


def _suggest(handler: Handler, rest: str, query: Query) -> None:
    names = [name for name, _ in pages.found_boats(query.get("q", "")).values()]
    handler.answer(json.dumps(names).encode(), kind="application/json")


def _boat(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(pages.boat(int(rest)))


def _worker(handler: Handler, rest: str, query: Query) -> None:
    handler.answer(pages.WORKER_JS.encode(), kind="text/javascript")


def _websocket(handler: Handler, rest: str, query: Query) -> None:
    """Echo all messages until the other side closes, each `ms` milliseconds later."""
    ms = int(query.get("ms", "0"))
    key = handler.headers.get("Sec-WebSocket-Key", "") + _WEBSOCKET_KEY
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header(
        "Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    )
    handler.end_headers()
    handler.close_connection = True
    while head := handler.rfile.read(2):
        size = head[1] & 127
        if size > 125:  # more than a test says
            return
        mask = handler.rfile.read(4)
        text = bytes(byte ^ mask[n % 4] for n, byte in enumerate(handler.rfile.read(size)))
        time.sleep(ms / 1000)
        handler.wfile.write(bytes([head[0], len(text)]) + text)
        if head[0] & 15 == 8:
            return


ROUTES: list[tuple[str, Respond]] = [
    ("/frame", _frame),
    ("/many", _many),
    ("/huge", _huge),
    ("/status/", _status),
    ("/redirect", _redirect),
    ("/loop", _loop),
    ("/file/", _file),
    ("/api/slow", _slow),
    ("/api/picture", _picture),
    ("/api/gate/", _gate),
    ("/api/open/", _open),
    ("/api/items", _items),
    ("/api/headers", _headers),
    ("/search", _search),
    ("/api/suggest", _suggest),
    ("/boats/", _boat),
    ("/forget", _forget),
    ("/keeping", _keeping),
    ("/kept.js", _kept),
    ("/slow-page", _slow_page),
    ("/logins/enter", _enter),
    ("/routes/", _routes),
    ("/worker.js", _worker),
    ("/ws", _websocket),
    ("/", _index),
]


def _files(kind: str, body: bytes) -> list[tuple[str, str]]:
    """The names and sizes in a multipart body."""
    message = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    names: list[tuple[str, str]] = []
    for part in chain(message.walk()):
        name = part.get_filename()
        content = part.get_payload(decode=True)
        if name is not None and isinstance(content, bytes):
            names.append(
                (name, f"{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}")
            )
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    with Lab(parser.parse_args().port) as lab:
        print(json.dumps({"port": lab.port}), flush=True)  # noqa: T201
        lab.stopped.wait()


if __name__ == "__main__":
    main()
