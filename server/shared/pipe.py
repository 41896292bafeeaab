"""The program that a client starts with `statehold --shared`: it carries lines between the client and the server.

When the server ends, it goes on with the next one. The client notices nothing, but for the calls that were running.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...sessions.errors import SessionError
from ..sockets.request import Exchange, is_unread
from .conversation import Conversation

READ_BYTES: Final = 1 << 18
LINE_BYTES: Final = 64 << 20
"""Bytes of one message at most. A longer one is passed on in parts, and the server refuses it."""
CHECK_SECONDS: Final = 2.0
"""Seconds between two looks for the next server, while the client needs none."""
STABLE_SECONDS: Final = 10.0
"""Seconds of a connection after which its end is not one of several in a row."""
LONGEST_WAIT_SECONDS: Final = 60.0
"""Seconds before the next server, after several ends in a row and while the client needs none. Each end doubles them."""


class Pipe:
    """Carries the lines of one client. `connect` returns a connection to the next server, which it starts if there is none.

    `is_expected`: whether the next server runs, or an earlier one was killed. A server that ended in order is not started
    again before the client sends something.
    """

    def __init__(self, connect: Callable[[], Exchange], is_expected: Callable[[], bool]) -> None:
        self._connect = connect
        self._is_expected = is_expected
        self._conversation = Conversation()
        # Guards what follows. The thread that sends changes it as well.
        self._changed = threading.Condition()
        self._connection: socket.socket | None = None
        self._has_line = False
        """Whether lines of the client wait, or have just waited, for a server."""
        self._is_sending = False
        self._client_closed = False
        self._problem: SessionError | None = None
        """The answer to the lines that wait now, because no server takes them."""
        self._client_reads = True

    def carry(self) -> SessionError | None:
        """Copy stdin to the server and its answers to stdout, until the client has closed its side. Blocks.

        The answers to its last requests still arrive after that. Without a server each request is answered with the error of
        `connect`, which is returned if it was the last word. Each request tries again, so the client needs no new start.
        Called once.

        Raises:
            Exception: as `connect` does, but for SessionError.
        """
        for fd in (0, 1):
            os.set_blocking(fd, True)
        threading.Thread(target=self._send_stdin, daemon=True).start()
        losses = 0
        while True:
            began_at = time.monotonic()
            try:
                self._serve(self._connect())
            except SessionError as error:
                self._refuse_waiting(error)
                with self._changed:
                    self._changed.wait_for(lambda: self._has_line or self._client_closed)
                    if self._client_closed and not self._has_line:
                        return error
                continue
            is_stable = time.monotonic() - began_at >= STABLE_SECONDS
            losses = 0 if is_stable else losses + 1
            if not self._wait_until_needed(losses):
                return None

    def _serve(self, exchange: Exchange) -> None:
        """Carry lines to one server and back until it ends.

        Raises:
            NotResumed: it does not accept the conversation.
        """
        is_last_unread = False
        try:
            self._begin(exchange)
            is_last_unread = self._receive(exchange)
        finally:
            self._end(exchange, is_last_unread)

    def _begin(self, exchange: Exchange) -> None:
        with suppress(OSError):
            exchange.connection.sendall(b"".join(self._conversation.begin()))
        with self._changed:
            self._connection = exchange.connection
            if self._client_closed:
                _close_side(exchange.connection)
            self._changed.notify_all()

    def _receive(self, exchange: Exchange) -> bool:
        """Write the lines of the server until it closes the connection. The last line may be half a line, and is dropped.

        Return whether the server ended without having read the end of the last line that it was sent.
        """
        data, unread = exchange.received, bytearray()
        while True:
            self._write(*map(self._conversation.from_server, _take_lines(unread, data)))
            try:
                data = exchange.connection.recv(READ_BYTES)
            except ConnectionError as error:
                return is_unread(error)
            if not data:
                return False

    def _end(self, exchange: Exchange, is_last_unread: bool) -> None:
        with self._changed:
            self._connection = None
        # A thread that sends on it gets an error.
        with suppress(OSError):
            exchange.connection.shutdown(socket.SHUT_RDWR)
        with self._changed:
            self._changed.wait_for(lambda: not self._is_sending)
        exchange.connection.close()
        self._write(*self._conversation.end(is_last_unread=is_last_unread))

    def _wait_until_needed(self, losses: int) -> bool:
        """Return when the next server is needed; False when the client has closed its side."""
        wait = min(LONGEST_WAIT_SECONDS, 2.0**losses) if losses > 1 else 0.0
        with self._changed:
            while not (self._has_line or self._client_closed or self._conversation.is_waiting):
                if not wait and self._is_expected():
                    break
                self._changed.wait(wait or CHECK_SECONDS)
                wait = 0.0
            return not self._client_closed or self._conversation.is_waiting

    def _refuse_waiting(self, error: SessionError) -> None:
        """Answer the requests that no server takes: those that were to be repeated, and those that are not sent."""
        self._write(*self._conversation.abandon(error))
        with self._changed:
            self._problem = error
            self._changed.notify_all()
            if not self._has_line:
                self._problem = None
            # Otherwise the thread that sends answers the lines that it has read; the next ones try again.
            self._changed.wait_for(lambda: self._problem is None)

    def _send_stdin(self) -> None:
        unread = bytearray()
        with suppress(OSError):
            while data := os.read(0, READ_BYTES):
                for line in _take_lines(unread, data):
                    self._send(line)
                if self._has_line:
                    with self._changed:
                        self._has_line, self._problem = False, None
                        self._changed.notify_all()
        if unread:
            self._send(bytes(unread))
        with self._changed:
            self._has_line, self._problem = False, None
            self._client_closed = True
            if self._connection is not None:
                _close_side(self._connection)
            self._changed.notify_all()

    def _send(self, line: bytes) -> None:
        """Send a line to the server, or to the next one, if this one did not get it."""
        connection = None
        while (connection := self._take_connection(connection)) is not None:
            try:
                connection.sendall(self._conversation.from_client(line))
                return
            except OSError:
                # Without its last byte the server did not read it.
                self._conversation.take_back(line)
            finally:
                with self._changed:
                    self._is_sending = False
                    self._changed.notify_all()
        if self._problem is not None:
            self._write(self._conversation.refuse(line, self._problem))

    def _take_connection(self, lost: socket.socket | None) -> socket.socket | None:
        """Wait for a connection other than the lost one, and return it to send on it; None when there is no server."""

        def is_decided() -> bool:
            return self._problem is not None or self._connection not in (None, lost)

        with self._changed:
            if not is_decided():
                self._has_line = True
                self._changed.notify_all()
                self._changed.wait_for(is_decided)
            self._is_sending = self._problem is None
            return self._connection if self._is_sending else None

    def _write(self, *lines: bytes) -> None:
        data = b"".join(lines)
        try:
            while data and self._client_reads:
                data = data[os.write(1, data) :]
        except OSError:
            # The client has closed stdout. Drop the answers until the end of stdin ends the connection.
            self._client_reads = False


def _take_lines(unread: bytearray, data: bytes) -> list[bytes]:
    """Append bytes to `unread`, and take the whole lines from it. A line that is too long is taken in parts."""
    unread += data
    if b"\n" not in data and len(unread) <= LINE_BYTES:
        return []
    end = unread.rfind(b"\n") + 1 or len(unread)
    *lines, rest = bytes(unread[:end]).split(b"\n")
    del unread[:end]
    return [line + b"\n" for line in lines] + ([rest] if rest else [])


def _close_side(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
