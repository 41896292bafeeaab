"""All sites on one port of loopback: `python -m benchmarks.agent.site.server`, which prints `{"port": N}`.

`/received` is the list of everything that visitors sent, for the check of a task.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from . import content, pages

ANSWER_SECONDS: Final = 0.08
"""How long the server takes for data that scripts ask for, as a server elsewhere would."""
POSTS_PER_PAGE: Final = 12
CARD: Final = "4242424242424242"


class Server(ThreadingHTTPServer):
    """The sites, with the data of the visitors of one run."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[dict[str, Any]] = []
        self.basket: list[dict[str, Any]] = []
        self.board = content.board()
        self._lock = threading.Lock()

    def receive(self, path: str, data: Any) -> None:
        with self._lock:
            self.received.append({"path": path, "data": data})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, but not that a browser went away before it had its answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two segments; Nagle's algorithm would hold the second one for 40 ms.
    disable_nagle_algorithm = True

    @property
    def sites(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        path = unquote(address.path).strip("/").split("/")
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        if (data := self._data(path, query)) is not None:
            self._send(200, "application/json", json.dumps(data).encode())
        elif (page := self._page(path, query)) is not None:
            self._send(200, "text/html; charset=utf-8", page.encode())
        else:
            self._send(404, "text/plain", b"Not found")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/bank/login":
            self._log_in({key: one[0] for key, one in parse_qs(body.decode()).items()})
            return
        data = self._parts(body) if self.path == "/claims" else json.loads(body)
        self.sites.receive(self.path, data)
        time.sleep(ANSWER_SECONDS)
        self._send(200, "application/json", json.dumps(self._reply(data)).encode())

    def _page(self, path: list[str], query: dict[str, str]) -> str | None:
        basket = self.sites.basket
        match path:
            case ["docs"]:
                return pages.docs()
            case ["docs", "notes", version]:
                return pages.notes(version)
            case ["shop"]:
                return pages.shop(len(basket))
            case ["shop", "product", number]:
                return pages.product(int(number), len(basket))
            case ["shop", "basket"]:
                return pages.basket(basket)
            case ["bank"]:
                return pages.login("Customer number or password is wrong." if query else "")
            case ["bank", "accounts"] if "bank=in" in (self.headers.get("Cookie") or ""):
                return pages.accounts()
            case ["feed", "post", number]:
                return pages.post(int(number))
            case ["checkout"]:
                # Another origin than that of the page around it, 127.0.0.1.
                return pages.checkout(f"http://localhost:{self.sites.server_port}/checkout/card")
            case ["checkout", "card"]:
                return pages.card()
            case ["board", *_]:
                return pages.board()
            case [name] if name in pages.PLAIN:
                return pages.PLAIN[name]()
            case _:
                return None

    def _data(self, path: list[str], query: dict[str, str]) -> Any:
        """Return the data that a script asks for, None for the address of a page."""
        board = self.sites.board
        match path:
            case ["received"]:
                return self.sites.received
            case ["shop", "suggest"]:
                found = content.search(query.get("q", ""))
            case ["feed", "posts"]:
                first = int(query["page"]) * POSTS_PER_PAGE
                found = content.posts()[first : first + POSTS_PER_PAGE]
            case ["board", "api", "projects"]:
                found = [
                    {"id": project, "name": name, "open": len(board[project])}
                    for project, name in content.PROJECTS.items()
                ]
            case ["board", "api", "projects", project]:
                found = {"name": content.PROJECTS[project], "tasks": board[project]}
            case ["board", "api", "people"]:
                found = content.PEOPLE
            case ["board", "api", "latest"]:
                found = [tasks[0] for tasks in board.values()]
            case _:
                return None
        time.sleep(ANSWER_SECONDS)
        return found

    def _reply(self, data: dict[str, Any]) -> dict[str, str | None]:
        match self.path:
            case "/shop/basket":
                self.sites.basket.append(data)
                return {"items": pages.items(len(self.sites.basket))}
            case "/register":
                return {"number": "PA-30917"}
            case "/claims":
                return {"reference": "C-401"}
            case "/checkout/pay":
                return {"order": "2291" if data["number"].replace(" ", "") == CARD else None}
            case _:
                tasks = self.sites.board[data["project"]]
                key = f"{tasks[0]['key'].partition('-')[0]}-{len(tasks) + 1}"
                task = {"key": key, "title": data["title"], "who": data["who"], "status": "Open"}
                tasks.insert(0, task)
                return {"key": key}

    def _log_in(self, data: dict[str, str]) -> None:
        self.sites.receive(self.path, data)
        login = (data.get("customer"), data.get("password"))
        right = login == (content.CUSTOMER, content.PASSWORD)
        self.send_response(303)
        if right:
            self.send_header("Set-Cookie", "bank=in; HttpOnly; Path=/")
        self.send_header("Location", "/bank/accounts" if right else "/bank?problem=wrong")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _parts(self, body: bytes) -> dict[str, str]:
        """Return the fields of a form with files."""
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        fields: dict[str, str] = {}
        for part in message_from_bytes(head + body).walk():
            if part.get_content_maintype() != "multipart":
                fields[_name(part)] = bytes(part.get_payload(decode=True) or b"").decode()  # pyright: ignore
        return fields

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _name(part: Message) -> str:
    return str(part.get_param("name", header="content-disposition"))


def main() -> None:
    server = Server()
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
