"""uvicorn's HTTP protocol with bounds on heads and bodies, on connections, and on unread answers.

Heads are read before the token is checked, so without bounds a stranger could fill the memory with them, or use up the
files that this process may have open.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Hashable
from functools import partial
from typing import Any, Final, cast

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ..auth.principals import principal_of
from .clients import Clients

HEAD_BYTES: Final = 64 * 2**10
"""Approximate limit of bytes outside of bodies; one read of at most 256 KiB may exceed it."""

HEAD_SECONDS: Final = 30.0
"""Seconds that a head may take, and that a new connection may stay silent."""

LINGER_SECONDS: Final = 2.0
"""Seconds for which a connection that is closed before the end of a request is still read. Closing it with unread data
would reset it, and the client might lose the answer."""

_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MANY: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """One connection. It is closed when a head, or the trailers of a chunked body, are too long or take too long.

    It is also closed after an answer that was sent before the end of its request; the rest of the request is not awaited.
    """

    head_seconds = HEAD_SECONDS
    shared: Clients | None = None
    """The connections of the server; see bounded()."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = 0
        """Bytes received since the parser last had a whole head, a piece of a body or the end of a request."""
        self._advanced = False
        self._bound: asyncio.TimerHandle | None = None
        self._body_bound: asyncio.TimerHandle | None = None
        self._clients = self.shared or Clients()
        self._in_body = False
        self._lingers = False
        self._waiting = 0
        """Bytes of an answer that the application holds until the client reads."""
        self.address = ""
        self.written = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self._clients.admit(self):
            self._bound = self.loop.call_later(self.head_seconds, transport.close)
        else:
            transport.write(_TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.leave(self)
        self._unbind()
        self._unbind_body()
        super().connection_lost(exc)

    # For the bounds of connections.

    def unsent(self) -> int:
        return self._waiting + self.transport.get_write_buffer_size()

    def key(self) -> Hashable:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        user: object = None if cycle is None else cycle.scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            return self.address
        return principal_of(user.access_token).key

    def abort(self) -> None:
        self.transport.abort()

    # Received.

    def data_received(self, data: bytes) -> None:
        if self._lingers or self.transport.is_closing():
            return
        self._advanced = False
        super().data_received(data)
        if self._in_body and self._body_bound is None:
            self._bind_body()
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

    def _bind_body(self) -> None:
        self._unbind_body()
        seconds = self._clients.settings.body_seconds
        self._body_bound = self.loop.call_later(seconds, self._end_body)

    def _unbind_body(self) -> None:
        if self._body_bound is not None:
            self._body_bound.cancel()
            self._body_bound = None

    def _end_body(self) -> None:
        if self.flow.read_paused:
            # The client cannot send because of an earlier request.
            self._bind_body()
            return
        if not self.cycle.response_started and not self.pipeline:
            self.transport.write(_TOO_SLOW)
        self.transport.close()

    # Sent.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        bounded_app: Any = partial(self._run, cycle, app)
        super()._start_asgi_task(cycle, bounded_app)

    def _run(
        self, cycle: RequestResponseCycle, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> Awaitable[None]:
        early = False

        async def answer(message: Message) -> None:
            nonlocal early
            if message["type"] == "http.response.start":
                if cycle.response_started:
                    # A second answer, to a request that failed after its first one had begun.
                    if not cycle.response_complete:
                        self.transport.close()
                    return
                if cycle.more_body:
                    early, cycle.keep_alive = True, False
            elif cycle.response_complete:
                return
            elif early:
                # The head said that the connection closes; uvicorn would close it without reading the rest.
                cycle.keep_alive = True
            size = len(message.get("body", b""))
            self.written += size
            if self.flow.write_paused:
                await self._send_later(message, send, size)
            else:
                await send(message)
            self._clients.wrote(self)
            if early and cycle.response_complete:
                self._linger()

        return app(scope, receive, answer)

    async def _send_later(self, message: Message, send: Send, size: int) -> None:
        self._waiting += size
        self._clients.wrote(self)
        try:
            await send(message)
        finally:
            self._waiting -= size

    def _linger(self) -> None:
        """End our side of the connection, and close it a little later."""
        self._lingers = True
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def on_response_complete(self) -> None:
        last = not self.pipeline
        super().on_response_complete()
        if last:
            self._clients.idle(self)

    # Callbacks of the parser.

    def on_headers_complete(self) -> None:
        self._advanced = True
        # RFC 9110, 5.5: spaces around a value are no part of it, and the parser leaves those after it.
        self.headers[:] = [(name, value.strip(b" \t")) for name, value in self.headers]
        self._compare_hosts()
        super().on_headers_complete()
        # uvicorn takes trailers for headers, and would add them to those of a request that runs already.
        self.headers = []
        self._in_body = True

    def _compare_hosts(self) -> None:
        """Add the host of the request's target to its headers if it differs from theirs: HostCheck refuses two hosts."""
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
        self._in_body = False
        self._unbind_body()
        super().on_message_complete()
        if not self.cycle.response_complete:
            self._clients.busy(self)


def bounded(clients: Clients) -> type[BoundedHttp]:
    """Return the protocol of a server whose connections share the bounds of `clients`."""

    class Http(BoundedHttp):
        shared = clients

    return Http


__all__ = ["HEAD_BYTES", "BoundedHttp", "bounded"]
