"""Bytes between a browser and a site: streams with their bounds, requests that are forwarded, and tunnels."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import anyio
from anyio.abc import SocketAttribute, SocketStream

from ....sessions.clock import Clock
from .network_policy import Target, UpstreamProxy
from .session_access import EgressAccess

BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
"""The exceptions of a connection that has ended."""

GONE = (OSError, AttributeError, ValueError, anyio.TypedAttributeLookupError)
"""The exceptions of the socket of such a connection, or of a question about it. uvloop raises those that are no OSError."""


async def close(stream: SocketStream) -> None:
    """Close, even in a cancelled scope. Bytes that the other side has not received may be lost."""
    with anyio.CancelScope(shield=True):
        await stream.aclose()


async def reset(stream: SocketStream) -> None:
    """Reset a connection, so that the other side does not take an incomplete answer for a complete one."""
    _set_option(stream, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await close(stream)


async def send_end(stream: SocketStream) -> None:
    """Send the end of the stream.

    Raises:
        anyio.BrokenResourceError: It has ended meanwhile.
    """
    try:
        await stream.send_eof()
    except RuntimeError as error:
        # uvloop raises it for a transport that is closed.
        raise anyio.BrokenResourceError from error


async def drain(stream: SocketStream, *, seconds: float = 2.0, most: int = 2**20) -> None:
    """Send the end of the stream and read on: a close with unread bytes would destroy the answer on its way.

    Reads for at most `seconds`, and about `most` bytes.
    """
    with anyio.move_on_after(seconds):
        try:
            await send_end(stream)
            while most > 0:
                most -= len(await stream.receive())
        except BROKEN:
            pass


def keep_alive(stream: SocketStream) -> None:
    """Turn on TCP keepalive, so that a vanished peer is noticed in the end."""
    _set_option(stream, socket.SO_KEEPALIVE, True)


def _set_option(stream: SocketStream, option: int, value: int | bytes) -> None:
    """Set an option of a socket, unless its connection has ended."""
    with suppress(*GONE):
        stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, option, value)


HEAD_BYTES: Final = 256 * 1024
"""The largest head of a request. Browsers and sites have smaller limits."""
HEAD_END: Final = b"\r\n\r\n"

_LENGTH: Final = re.compile(rb"^content-length:[ \t]*(\d+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_CHUNKED: Final = re.compile(rb"^transfer-encoding:", re.IGNORECASE | re.MULTILINE)
_UPGRADE: Final = re.compile(rb"^upgrade:", re.IGNORECASE | re.MULTILINE)


def asks_to_upgrade(head: bytes) -> bool:
    """Return whether a request asks for another protocol, such as a WebSocket, which needs a tunnel."""
    return _UPGRADE.search(head) is not None


class RequestRewriter:
    """Gives each request on one connection the absolute address that a proxy needs, and its Proxy-Authorization.

    The address is that of the checked target, whatever the request names as its host. Bodies and responses are not changed.
    """

    def __init__(self, proxy: UpstreamProxy, target: Target) -> None:
        self._site = f"http://{target.authority.removesuffix(':80')}".encode()
        self._headers = b"".join(b"%s: %s\r\n" % header for header in proxy.headers())
        self._head = b""
        self._body_bytes: float = 0
        """The bytes that are left of the body of the current request."""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes for the proxy that follow from the next bytes of the browser.

        Raises:
            anyio.BrokenResourceError: They are no requests of a browser.
        """
        output: list[bytes] = []
        while data:
            if self._body_bytes:
                size = int(min(self._body_bytes, len(data)))
                output.append(data[:size])
                data = data[size:]
                self._body_bytes -= size
                continue
            self._head += data
            head, end, data = self._head.partition(HEAD_END)
            if not end:
                if len(head) > HEAD_BYTES:
                    raise anyio.BrokenResourceError
                break
            self._head = b""
            output.append(self._rewrite(head) + end)
        return b"".join(output)

    def _rewrite(self, head: bytes) -> bytes:
        request_line, _, headers = head.partition(b"\r\n")
        method, _, rest = request_line.partition(b" ")
        lengths = set(_LENGTH.findall(headers))
        if not rest.startswith(b"/") or len(lengths) > 1:
            raise anyio.BrokenResourceError
        # A body without a length has no end that is visible here. Browsers send none over HTTP/1.1.
        self._body_bytes = float("inf") if _CHUNKED.search(headers) else int(*lengths or (0,))
        return b"%s %s%s\r\n%s%s" % (method, self._site, rest, self._headers, headers)


LINGER_SECONDS: Final = 60.0
"""Seconds for which one direction of a tunnel may be silent after the other has ended."""

QUIET_SECONDS: Final = 5.0
"""Seconds of silence after which arriving bytes count as a new response; the contents of a tunnel are not visible."""


Rewrite: TypeAlias = Callable[[bytes], bytes]
"""Returns the bytes for the site that follow from the next bytes of the browser."""


class Overfull(Exception):
    """Raised when a response is larger than the policy allows."""


class Tunnel:
    """Carries bytes until both sides have ended, one breaks, or run() is cancelled. It closes neither stream."""

    def __init__(
        self,
        near: SocketStream,
        far: SocketStream,
        access: EgressAccess,
        clock: Clock,
        rewrite: Rewrite | None = None,
    ) -> None:
        """`rewrite` changes the bytes to the site."""
        self._near = near
        self._far = far
        self._access = access
        self._clock = clock
        self._rewrite = rewrite
        self._half_closed = False
        self._response_bytes = 0
        self._last = 0.0
        self._overfull = False
        self._broken = False
        self._scope = anyio.CancelScope()

    async def run(self, *, to_site: bytes = b"", to_browser: bytes = b"") -> bool:
        """Carry bytes until the end, after those given here. Return whether both sides ended of their own accord.

        Raises:
            Overfull: The site sent too much.
        """
        async with anyio.create_task_group() as tasks:
            self._scope = tasks.cancel_scope
            tasks.start_soon(self._carry_direction, self._near, self._far, to_site)
            tasks.start_soon(self._carry_direction, self._far, self._near, to_browser)
        if self._overfull:
            raise Overfull
        return not self._broken

    async def _carry_direction(
        self, source: SocketStream, sink: SocketStream, first_bytes: bytes
    ) -> None:
        to_browser = source is self._far
        piece = self._access.bandwidth.piece
        try:
            if first_bytes:
                await self._carry(first_bytes, sink, to_browser=to_browser)
            with suppress(anyio.EndOfStream):
                while True:
                    await self._carry(await source.receive(piece), sink, to_browser=to_browser)
            await send_end(sink)
            self._half_closed = True
            self._scope.deadline = anyio.current_time() + LINGER_SECONDS
        except Overfull:
            self._overfull = True
            self._scope.cancel()
        except BROKEN:
            self._broken = True
            self._scope.cancel()

    async def _carry(self, data: bytes, sink: SocketStream, *, to_browser: bool) -> None:
        if self._rewrite is not None and not to_browser and not (data := self._rewrite(data)):
            return
        await self._access.bandwidth.take(len(data))
        if self._half_closed:
            self._scope.deadline = anyio.current_time() + LINGER_SECONDS
        if to_browser:
            self._count(len(data))
        else:
            self._access.bytes_sent += len(data)
        await sink.send(data)

    def _count(self, count: int) -> None:
        self._access.bytes_received += count
        limit = self._access.policy.response_bytes
        if limit is None:
            return
        now = self._clock.now()
        if now - self._last > QUIET_SECONDS:
            self._response_bytes = 0
        self._last = now
        self._response_bytes += count
        if self._response_bytes > limit:
            raise Overfull
