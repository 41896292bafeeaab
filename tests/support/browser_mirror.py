"""A mirror of Playwright's downloads on this machine."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from .page_server import serve_pages


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
    with serve_pages(Mirror) as address:
        yield address


__all__ = ["browser_mirror"]
