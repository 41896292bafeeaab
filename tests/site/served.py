"""Shared base of the test sites: threads that serve every loopback address, from `with` until its end or close()."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from hits import Hits


class Served:
    """A site whose `handler` finds it as `server.site`. `hits` are the requests that it saw."""

    handler: type[BaseHTTPRequestHandler]

    def __init__(self, port: int = 0) -> None:
        self.hits = Hits()
        self._server = Server(("", port), self.handler)
        self._server.site = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def at(self, number: int) -> str:
        return f"http://127.0.0.{number}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    site: Any


__all__ = ["Served", "Server"]
