"""The program that a client starts with `statehold --shared`: it carries bytes between the client and the server."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

from .connection import Exchange

READ_BYTES = 1 << 18


def carry(exchange: Exchange) -> bool:
    """Copy stdin to the server and its answers to stdout until the server closes the connection. Blocks.

    Returns whether the client had closed its side by then. The answers to its last requests still arrive after that.
    """
    for fd in (0, 1):
        os.set_blocking(fd, True)
    client_closed = threading.Event()
    connection = exchange.connection
    threading.Thread(target=_send_stdin, args=(connection, client_closed), daemon=True).start()
    _write_stdout(connection, exchange.received)
    return client_closed.is_set()


def _send_stdin(connection: socket.socket, client_closed: threading.Event) -> None:
    with suppress(OSError):
        while data := os.read(0, READ_BYTES):
            connection.sendall(data)
        client_closed.set()
        connection.shutdown(socket.SHUT_WR)


def _write_stdout(connection: socket.socket, received: bytes) -> None:
    client_reads = True
    data = received
    while True:
        try:
            data = data or connection.recv(READ_BYTES)
        except ConnectionError:
            return
        if not data:
            return
        try:
            while data and client_reads:
                data = data[os.write(1, data) :]
        except OSError:
            # The client has closed stdout. Drop the answers until the end of stdin ends the connection.
            client_reads = False
        data = b""


__all__ = ["carry"]
