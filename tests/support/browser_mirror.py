"""A mirror of Playwright's downloads on this machine."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Mirror(BaseHTTPRequestHandler):
    """Gives any build that is asked for: an archive with the program that Playwright expects in it."""

    def do_GET(self) -> None:
        name = "chrome-headless-shell-linux64/chrome-headless-shell"
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for path in (name, "ffmpeg-linux"):
                entry = zipfile.ZipInfo(path)
                entry.external_attr = 0o755 << 16
                archive.writestr(entry, "#!/bin/sh\necho Chromium 140.0.1.2\n")
        self.send_response(200)
        self.send_header("Content-Length", str(len(content.getvalue())))
        self.end_headers()
        self.wfile.write(content.getvalue())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def browser_mirror() -> Generator[str]:
    """Serve the mirror until the block ends, and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


__all__ = ["browser_mirror"]
