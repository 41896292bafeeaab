"""A site whose page counts in its memory, and fetches all the time."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAGE = """<title>Counting</title><button onclick="clicks++">Add</button><input aria-label="Name">
<div style="height: 5000px"></div>
<script>
let clicks = 0, fetched = 0, failed = 0;
(async () => {
  for (;;) {
    try { await (await fetch("/beat")).text(); fetched++; } catch { failed++; }
    await new Promise(resolve => setTimeout(resolve, 20));
  }
})();
</script>"""


class CountingSite:
    """The site at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url


@contextmanager
def counting_site() -> Generator[CountingSite]:
    """Run the site while the block runs."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_page = self.path == "/"
            data = PAGE.encode() if is_page else self.path.strip("/").encode()
            self.send_response(200)
            self.send_header("content-type", "text/html" if is_page else "text/plain")
            if is_page:
                self.send_header("set-cookie", "login=ok")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    site = CountingSite(f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


__all__ = ["CountingSite", "counting_site"]
