"""uvicorn's HTTP protocol with limits on heads and bodies, on connections, and on unread answers.

The head of a request is read before its token is checked. Without limits, a client without a token could fill the memory or
use up the open files of this process.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Hashable
from functools import partial
from typing import Any, Final, cast

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...access.claims import VerifiedCaller
from ...access.refusals import network_of
from ...sessions.live.session import client_address
from .clients import Clients
from .proxies import TrustedProxies

HOLD_UNSENT: Final = "statehold.hold_unsent"
"""The key of a scope with a function that counts bytes of answers that wait before they are sent."""

REFUSAL: Final = "statehold.refusal"
"""The key of a scope with the response of a request that the application does not get."""

HEAD_BYTES: Final = 64 * 2**10
"""Approximate limit of bytes outside of bodies; one read of at most 256 KiB may exceed it."""

MAX_HEADERS: Final = 256
"""Limit of headers in a head: each costs time and memory, however short it is."""

MAX_CHUNKS: Final = 1024
"""Chunks of a body that may have any size."""

CHUNK_BYTES: Final = 64
"""Least average size of the chunks of a body with more than MAX_CHUNKS of them."""

HEAD_SECONDS: Final = 30.0
"""Seconds that a head may take, and that a new connection may stay silent."""

LINGER_SECONDS: Final = 2.0
"""Seconds for which a connection is still read after an early answer. Closing it with unread data would reset it, and the
client might lose the answer."""

_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MANY: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


class _TooManyParts(Exception):
    """Raised inside of the parser, which then refuses the request."""


class BoundedHttp(HttpToolsProtocol):
    """One connection. It is closed when a head, or the trailers of a chunked body, are too long or take too long.

    Heads of many headers and bodies of many tiny chunks are refused, too.

    It is also closed after an early answer: one that was sent before its request had arrived completely.
    """

    head_seconds = HEAD_SECONDS
    server_clients: Clients | None = None
    """The connections of the server; see bounded_protocol()."""
    server_proxies: TrustedProxies | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending_bytes = 0
        """Bytes received since the parser last completed a head, a piece of a body or a request."""
        self._has_progress = False
        """Whether the parser completed one of these with the last data."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._clients = self.server_clients or Clients()
        self._proxies = self.server_proxies
        self._proxy: str | None = None
        """The address of the other end if it is a trusted proxy."""
        self._in_body = False
        self._is_lingering = False
        self._chunks = 0
        self._chunked_bytes = 0
        self._waiting_bytes = 0
        """Bytes of an answer that the application waits to send, because the client does not read."""
        self.address = ""
        """The share that holds the connection: of a proxy, or of the network of its client."""
        self.written_bytes = 0
        self.body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if self._proxies is not None and self._proxies.trusts(address):
            self._proxy = address
        self.address = self._proxy or network_of(address)
        if self._clients.admit(self, is_proxy=self._proxy is not None):
            self._head_timer = self.loop.call_later(self.head_seconds, transport.close)
        else:
            transport.write(_TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.leave(self)
        self._cancel_head_timer()
        self._cancel_body_timer()
        super().connection_lost(exc)

    # The interface for Clients.
    def unsent_bytes(self) -> int:
        return self._waiting_bytes + self.transport.get_write_buffer_size()

    def hold_unsent(self, size: int) -> None:
        """Count bytes of answers that wait before the application sends them; a negative number ends that."""
        if size and not self.transport.is_closing():
            self._waiting_bytes += size
            self.written_bytes += size
            self._clients.watch_unread(self)

    def key(self) -> Hashable:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        user: object = None if cycle is None else cycle.scope.get("user")
        if not isinstance(user, VerifiedCaller):
            return self.address
        return user.principal.key

    def abort(self) -> None:
        self.transport.abort()

    def close(self) -> None:
        self.transport.close()

    def refuse(self) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if not self.pipeline and (cycle is None or not cycle.response_started):
            self.transport.write(_TOO_MANY)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._is_lingering or self.transport.is_closing():
            return
        self._has_progress = False
        super().data_received(data)
        if self._in_body and self._body_timer is None:
            self._start_body_timer()
        if self._has_progress:
            self._pending_bytes = 0
            if self._head_timer is not None:
                self._cancel_head_timer()
            return
        self._pending_bytes += len(data)
        if self.transport.is_closing():
            return
        self._clients.add_body(self, len(data))
        if self.transport.is_closing():
            return
        if self._pending_bytes > HEAD_BYTES:
            cycle = cast("RequestResponseCycle | None", self.cycle)
            if cycle is None or cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _start_body_timer(self) -> None:
        self._cancel_body_timer()
        seconds = self._clients.settings.body_seconds
        self._body_timer = self.loop.call_later(seconds, self._on_body_timeout)

    def _cancel_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _on_body_timeout(self) -> None:
        if self.flow.read_paused:
            # We do not read the body, because an earlier request is still being answered.
            self._start_body_timer()
            return
        if not self.cycle.response_started and not self.pipeline:
            self.transport.write(_TOO_SLOW)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        bounded_app: Any = partial(self._run_app, cycle, app)
        super()._start_asgi_task(cycle, bounded_app)

    def _run_app(
        self, cycle: RequestResponseCycle, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> Awaitable[None]:
        is_early = False
        app = cast("ASGIApp", scope.pop(REFUSAL, app))
        client_address.set(scope["client"][0] if scope["client"] else "")
        scope[HOLD_UNSENT] = self.hold_unsent

        async def answer(message: Message) -> None:
            nonlocal is_early
            if message["type"] == "http.response.start":
                if cycle.response_started:
                    # The error response of a request that failed after its response had begun.
                    if not cycle.response_complete:
                        self.transport.close()
                    return
                if self._clients.is_draining:
                    cycle.keep_alive = False
                if cycle.more_body:
                    is_early, cycle.keep_alive = True, False
            elif cycle.response_complete:
                return
            elif is_early:
                # The head has announced the close. Without this, uvicorn would close before the rest is read.
                cycle.keep_alive = True
            if self.transport.is_closing():
                # uvicorn tells only the last of several pipelined requests; a write is an error of uvloop.
                cycle.disconnected = True
            size = len(message.get("body", b""))
            self.written_bytes += size
            if self.flow.write_paused:
                await self._send_later(message, send, size)
            else:
                await send(message)
            self._clients.watch_unread(self)
            if is_early and cycle.response_complete:
                self._linger()

        return app(scope, receive, answer)

    async def _send_later(self, message: Message, send: Send, size: int) -> None:
        self._waiting_bytes += size
        self._clients.watch_unread(self)
        try:
            await send(message)
        finally:
            self._waiting_bytes -= size

    def _linger(self) -> None:
        """End our side of the connection, and close it after LINGER_SECONDS."""
        self._is_lingering = True
        if not self.transport.is_closing():
            self.transport.resume_reading()
            # Over TLS there is none; the head has announced the close.
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def on_response_complete(self) -> None:
        last = not self.pipeline
        super().on_response_complete()
        if last:
            self._clients.release_bodies(self)
            if self._proxy is not None:
                self._clients.move(self, self._proxy, is_proxy=True)
            self._clients.idle(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise _TooManyParts
        # Like uvicorn's method, which would double the time of each header.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        # RFC 9110, 5.5: spaces around a value are no part of it; the parser only removes those before it.
        self.headers.append((name, value.strip(b" \t")))

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MAX_CHUNKS and self._chunked_bytes < CHUNK_BYTES * self._chunks:
            raise _TooManyParts

    def on_headers_complete(self) -> None:
        self._has_progress = True
        self._chunks = self._chunked_bytes = 0
        if not self.url.startswith(b"/"):
            self._compare_hosts()
        if self._proxies is not None:
            self._check_proxy(self._proxies)
        super().on_headers_complete()
        # uvicorn would add trailers to the headers of the request, which runs already.
        self.headers = []
        self._in_body = True

    def _check_proxy(self, proxies: TrustedProxies) -> None:
        """Give the request the client behind the proxy, or the refusal of one that should have come through a proxy."""
        if self._proxy is None:
            path = self.url.partition(b"?")[0].decode("latin-1")
            if proxies.refuses(self.client[0] if self.client else "", path):
                self._clients.refusals.add("request past server.trusted_proxies", self.address)
                self.scope[REFUSAL] = PlainTextResponse("Only the proxies may connect", 403)  # type: ignore[typeddict-unknown-key]
            return
        address, scheme = proxies.client_of(self._proxy, self.headers)
        self.scope["client"] = (address, 0)
        self.scope["scheme"] = scheme or self.scope["scheme"]
        counted = address if address == self._proxy else network_of(address)
        if not self._clients.move(self, counted, is_proxy=address == self._proxy):
            headers = {"retry-after": "1"}
            self.scope[REFUSAL] = PlainTextResponse("Too many connections", 503, headers)  # type: ignore[typeddict-unknown-key]

    def _compare_hosts(self) -> None:
        """Add the host in the request's target to its headers if they differ: HostCheck refuses a request with two."""
        _, separator, rest = self.url.partition(b"://")
        if not separator:
            return
        host = re.split(rb"[/?#]", rest, maxsplit=1)[0].lower()
        if [value.lower() for name, value in self.headers if name == b"host"] != [host]:
            self.headers.append((b"host", host))

    def on_body(self, body: bytes) -> None:
        self._has_progress = True
        self._chunked_bytes += len(body)
        if not self.transport.is_closing():
            self._clients.add_body(self, len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_progress = True
        self._in_body = False
        if self._body_timer is not None:
            self._cancel_body_timer()
        super().on_message_complete()
        if not self.cycle.response_complete:
            self._clients.busy(self)


def bounded_protocol(clients: Clients, proxies: TrustedProxies | None = None) -> type[BoundedHttp]:
    """Return the protocol class of a server whose connections are counted in `clients`."""

    class Http(BoundedHttp):
        server_clients = clients
        server_proxies = proxies

    return Http
