"""uvicorn's HTTP protocol with bounds on the head of a request, which the parser would collect without end.

What comes before the body is read before anybody is asked for a token, so a stranger could fill the memory with it.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .joined import Joined

HEAD_BYTES: Final = 64 * 2**10
"""About how much may come that is no body; what is read at once, at most 256 KiB, may exceed it."""

HEAD_SECONDS: Final = 30.0
"""How long a head may take, and how long a new connection may stay silent."""

_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """One connection. It is closed when a head, or what follows a chunked body, is too long or takes too long."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = 0
        """Bytes that came since the parser last had a whole head, a piece of a body or the end of a request."""
        self._advanced = False
        self._in_head = False
        self._bound: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Joined(transport))
        self._bound = self.loop.call_later(self.head_seconds, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unbind()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._advanced = False
        super().data_received(data)
        if self._advanced:
            self._unfinished = 0
            self._unbind()
            return
        self._unfinished += len(data)
        if self.transport.is_closing():
            return
        if self._unfinished > HEAD_BYTES:
            cycle = cast("RequestResponseCycle | None", self.cycle)
            if cycle is None or cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._bound is None:
            self._bound = self.loop.call_later(self.head_seconds, self.transport.close)

    def _unbind(self) -> None:
        if self._bound is not None:
            self._bound.cancel()
            self._bound = None

    # What the parser found.

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # uvicorn takes trailers for headers, and adds them to those of a request that runs already.
        if self._in_head:
            # RFC 9110, 5.5: spaces around a value are no part of it, and the parser leaves those after it.
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._advanced = True
        self._compare_hosts()
        super().on_headers_complete()

    def _compare_hosts(self) -> None:
        """Add the host that the request's target names to its headers, when it is another than theirs: two are refused."""
        if self.url.startswith(b"/"):
            return
        _, separator, rest = self.url.partition(b"://")
        if not separator:
            return
        host = re.split(rb"[/?#]", rest, maxsplit=1)[0].lower()
        if [value.lower() for name, value in self.headers if name == b"host"] != [host]:
            self.headers.append((b"host", host))

    def on_body(self, body: bytes) -> None:
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._advanced = True
        super().on_message_complete()


__all__ = ["HEAD_BYTES", "BoundedHttp"]
