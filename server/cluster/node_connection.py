"""The client's end of an HTTP connection between two nodes. An exchange takes other clients two to eight times as long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from .assertion import HEADER, Assertions, Headers, NodeRequest
from .response_parser import new_parser

if TYPE_CHECKING:
    from .assertion import Assertion

CONTINUE: Final = 100
UNREAD_BYTES: Final = 1 << 20
"""Bytes of a response that wait to be read before the connection stops receiving."""


class ConnectionEnded(Exception):
    """Raised when the other node has closed the connection, or sends something that is no HTTP response."""


class NodeConnection(asyncio.Protocol):
    """One connection to another node. It carries one exchange at a time: send(), then head(), then read() until the end,
    or read_line().

    The other node begins a request with `100 Continue`. A connection whose response was not read to its end is closed, which
    cancels the request. close() may be called twice.
    """

    def __init__(self, node: str, assertions: Assertions) -> None:
        self._node = node
        self._assertions = assertions
        self._transport: asyncio.Transport | None = None
        self._parser = new_parser(self)
        self._is_lost = False
        self._waiter: asyncio.Future[None] | None = None
        self._is_begun = False
        self._head: tuple[int, Headers] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: deque[bytes] = deque()
        self._unread = 0
        self._rest = b""
        """Bytes after the line that was read last."""
        self._is_whole = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have no common class with asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except Exception:
            self.abort()
        if self._unread > UNREAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._is_begun = True
        status = self._parser.get_status_code()
        if status != CONTINUE:
            self._head = status, self._headers
        self._headers = []

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._unread += len(body)

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._is_whole = True

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, is_over: Callable[[], object]) -> None:
        """Wait until a condition holds.

        Raises:
            ConnectionEnded: the connection ended before.
        """
        while not is_over():
            if self._is_lost:
                raise ConnectionEnded
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    @property
    def is_open(self) -> bool:
        return (
            self._transport is not None and not self._transport.is_closing() and not self._is_lost
        )

    @property
    def is_whole(self) -> bool:
        """Whether no exchange is under way."""
        return self._is_whole

    def send(self, request: NodeRequest, assertion: Assertion) -> bytes:
        """Send a request, and return the header with its assertion.

        Raises:
            ConnectionEnded: the connection is closed.
        """
        if self._transport is None or not self.is_open:
            raise ConnectionEnded
        assert self._is_whole, "an exchange is under way"
        self._is_begun, self._head, self._is_whole, self._rest = False, None, False, b""
        header = self._assertions.sign(self._node, request, assertion)
        head = [
            f"{request.method} {request.target} HTTP/1.1\r\nhost: node\r\n".encode("latin-1"),
            b"expect: 100-continue\r\n",
            b"content-length: %d\r\n" % len(request.body),
            HEADER + b": " + header + b"\r\n",
            *(name + b": " + value + b"\r\n" for name, value in request.headers),
            b"\r\n",
        ]
        self._transport.write(b"".join([*head, request.body]))
        return header

    async def wait_begun(self, within: float) -> None:
        """Return when the other node has begun the request, or has answered it.

        Raises:
            ConnectionEnded: the connection ended before.
            TimeoutError: it took longer than `within` seconds.
        """
        is_late = False

        def expire() -> None:
            # The time is not compared: uvloop calls up to a millisecond early.
            nonlocal is_late
            is_late = True
            self._wake()

        # A cancel scope would cost as much as the exchange.
        timer = asyncio.get_running_loop().call_later(within, expire)
        try:
            await self._wait(lambda: self._is_begun or is_late)
        finally:
            timer.cancel()
        if not self._is_begun:
            raise TimeoutError

    async def head(self) -> tuple[int, Headers]:
        """Return the status and the headers of the response. Raises ConnectionEnded."""
        await self._wait(lambda: self._head is not None)
        assert self._head is not None
        return self._head

    async def read(self) -> bytes:
        """Return the next bytes of the response, b"" at its end. Raises ConnectionEnded."""
        await self._wait(lambda: self._parts or self._is_whole)
        if not self._parts:
            return b""
        part = b"".join(self._parts)
        self._parts.clear()
        if self._unread > UNREAD_BYTES and self._transport is not None:
            self._transport.resume_reading()
        self._unread = 0
        return part

    async def read_line(self) -> bytes:
        """Return the next line of the response, b"" at its end.

        Raises:
            ConnectionEnded: the connection ended, or the response ended within a line.
        """
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            part = await self.read()
            if not part:
                if any(parts):
                    raise ConnectionEnded
                return b""
            parts.append(part)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it without waiting for bytes that the other node has not read."""
        if self._transport is not None:
            self._transport.abort()
