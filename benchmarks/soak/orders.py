"""Pages that order all the time while everything is killed. The shop's own log tells how often an order arrived."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Final, Protocol

import anyio
from mcp import Client

from ..plan import Era
from .callers import GONE, code_of, text_of
from .findings import Findings

PAGE: Final = """<title>Shop</title><script>
const page = Math.random().toString(36).slice(2), done = [];
let placed = 0, failed = 0, since = Date.now();
(async () => {
  for (;;) {
    const number = `${page}-${++placed}`;
    since = Date.now();
    try {
      const answer = await fetch("/order", { method: "POST", body: number });
      await answer.text();
      done.push(number);
    } catch {
      failed++;
    }
    await new Promise(resolve => setTimeout(resolve, 20));
  }
})();
</script>"""
REPORT: Final = (
    "() => ({ done: done.splice(0), placed, failed, waiting: (Date.now() - since) / 1000 })"
)
ANSWER_SECONDS: Final = 0.15
"""Most seconds that the shop takes to answer after it wrote an order down: a kill meanwhile cuts the order off."""
WAITING_SECONDS: Final = 100.0
"""Seconds after which an order that neither arrived nor failed counts as lost. Its session may get no call for a while."""
CALL_SECONDS: Final = 90.0
REST_SECONDS: Final = (0.2, 1.0)


class Shops(Protocol):
    """The nodes as a shopper sees them."""

    def connect(
        self, transport: str, era: Era, name: str, random: Random
    ) -> AbstractAsyncContextManager[Client]: ...


@dataclass
class Shop:
    """The shop at `url`, and how often each order arrived there."""

    url: str = ""
    orders: Counter[str] = field(default_factory=Counter[str])


@contextmanager
def shop(seed: int) -> Generator[Shop]:
    """Run the shop while the block runs."""
    random, lock, open_shop = Random(seed), threading.Lock(), Shop()

    class Pages(BaseHTTPRequestHandler):
        # Chromium repeats a request only on a connection that it has used before.
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("text/html", PAGE.encode())

        def do_POST(self) -> None:
            number = self.rfile.read(int(self.headers["content-length"])).decode()
            with lock:
                open_shop.orders[number] += 1
                seconds = random.uniform(0, ANSWER_SECONDS)
            time.sleep(seconds)
            self._answer("text/plain", b"thanks")

        def _answer(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore a browser that was killed."""

    with Server(("127.0.0.1", 0), Pages) as server:
        open_shop.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield open_shop
        finally:
            server.shutdown()
            thread.join()


class Shopper:
    """One session whose page orders. It asks the page now and then, and connects again after each failure."""

    def __init__(
        self, number: int, nodes: Shops, shop: Shop, findings: Findings, random: Random
    ) -> None:
        self._tag = f"shopper{number}"
        self._nodes = nodes
        self._shop = shop
        self._findings = findings
        self._random = random
        self._session = ""
        self._is_stopping = False

    def stop(self) -> None:
        """Let the shopper end after its current call."""
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            try:
                connected = self._nodes.connect("http", "modern", self._tag, self._random)
                async with connected as client:
                    while not self._is_stopping:
                        await self._step(client)
                        await anyio.sleep(self._random.uniform(*REST_SECONDS))
            except Exception:
                # The node was killed or stopped.
                self._findings.calls["reconnects"] += 1
                await anyio.sleep(REST_SECONDS[0])

    async def _step(self, client: Client) -> None:
        if not self._session:
            created = await client.call_tool("session_create", {})
            if created.is_error or created.structured_content is None:
                return
            self._session = created.structured_content["session_id"]
        report = await self._call(client, "browser_evaluate", function=REPORT)
        if report is None:
            await self._call(client, "browser_navigate", url=self._shop.url)
            return
        self._findings.calls["orders"] += len(report["done"])
        self._findings.calls["orders that failed"] += report["failed"]
        for number in report["done"]:
            if not self._shop.orders[number]:
                self._findings.add("lost orders", f"{self._tag}: {number} is done, did not arrive")
        if report["waiting"] > WAITING_SECONDS:
            self._findings.add("lost orders", f"{self._tag}: one waits for {report['waiting']:g} s")

    async def _call(self, client: Client, tool: str, **arguments: str) -> dict[str, Any] | None:
        """Return the report of the page, if the call brought one. Raises TimeoutError without an answer."""
        with anyio.fail_after(CALL_SECONDS):
            result = await client.call_tool(tool, {"session_id": self._session, **arguments})
        if result.is_error and code_of(result) in GONE:
            self._session = ""
        output = text_of(result).partition("### Result\n")[2].partition("\n###")[0]
        if result.is_error or not output.startswith("{"):
            return None
        return json.loads(output)


def check_orders(shop: Shop, findings: Findings) -> None:
    """Find the orders that arrived more than once."""
    findings.calls["orders that arrived"] = len(shop.orders)
    for number, times in shop.orders.items():
        if times > 1:
            findings.add("orders twice", f"{number}: {times} times")


__all__ = ["Shop", "Shopper", "check_orders", "shop"]
