"""The connection of a process to the background server of a data folder, which is started if there is none.

Everything here blocks, and imports only the standard library: a client waits for it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..sockets.unix_sockets import is_listening, is_same_user
from .folder import START_LOCK, SharedFolder
from .handshake import MalformedLine, Reply, Request

START_SECONDS = 60.0
"""Seconds until a server has to answer, with the end of an earlier one and the start of a new one."""
REPLY_SECONDS = 20.0
"""Seconds until a server has to reply to a request."""
RETRY_SECONDS = 0.02
REPLY_BYTES = 1 << 20


class ServerUnavailable(Exception):
    """Raised when no server of the data folder can be reached or started. Its text is one line."""


class ServerRefused(Exception):
    """Raised when the server refused the request. Its text is one line: the reason and the remedy."""


@dataclass(frozen=True)
class Exchange:
    """A connection on which a request was answered, with the bytes that followed the reply."""

    connection: socket.socket
    reply: Reply
    received: bytes


def connect(folder: SharedFolder, request: Request, command: Sequence[str]) -> Exchange:
    """Return a connection on which the server has welcomed this client. `command` starts a server if there is none.

    Raises:
        ServerRefused: the server does not serve this client.
        ServerUnavailable: no server can be reached or started.
        OSError: the folder cannot be used.
    """
    deadline = time.monotonic() + START_SECONDS
    folder.create()
    while True:
        exchange = ask(folder, request)
        if exchange is not None and exchange.reply.outcome == "welcome":
            return exchange
        if exchange is not None:
            exchange.connection.close()
            if exchange.reply.outcome == "refused":
                raise ServerRefused(exchange.reply.text)
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise ServerUnavailable(
                f"the server of {folder.data} does not answer; see {folder.log}"
            )
        if exchange is None:
            _start_unless_running(folder, command, remaining)
        # A server that ends has still to close its socket, and one with many new clients to accept them.
        time.sleep(RETRY_SECONDS)


def _start_unless_running(folder: SharedFolder, command: Sequence[str], within: float) -> None:
    """Start a server. Of several clients at once one starts it, and the others wait for it."""
    with folder.lock(START_LOCK, within=within) as is_held:
        if is_held and not is_listening(folder.socket):
            # Imported here: most clients find a server.
            from .start import start_server

            reason = start_server(folder, command, within=within)
            # A server that another client started may have been faster, if that client was killed meanwhile.
            if reason is not None and not is_listening(folder.socket):
                raise ServerUnavailable(f"the server of {folder.data} did not start: {reason}")


def ask(folder: SharedFolder, request: Request) -> Exchange | None:
    """Send a request to the server and return its reply with the connection; None if there is no server, or it ends.

    Raises:
        ServerUnavailable: the server does not reply, or its reply is malformed.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(REPLY_SECONDS)
        connection.connect(os.fspath(folder.socket))
        if not is_same_user(connection):
            raise ServerUnavailable(f"{folder.socket} belongs to another user")
        connection.sendall(request.line())
        line, received = _read_line(connection)
        if line is not None:
            connection.settimeout(None)
            return Exchange(connection, Reply.parse(line), received)
        connection.close()
    except (FileNotFoundError, ConnectionError, BlockingIOError):
        # BlockingIOError: too many clients wait to be accepted.
        connection.close()
    except (TimeoutError, MalformedLine):
        connection.close()
        raise ServerUnavailable(
            f"the server of {folder.data} gives no answer; see {folder.log}"
        ) from None
    except BaseException:
        connection.close()
        raise
    return None


def _read_line(connection: socket.socket) -> tuple[bytes | None, bytes]:
    """Return the reply and what follows it; None when the server ended before its reply."""
    read = b""
    while b"\n" not in read:
        data = connection.recv(65_536)
        if not data:
            return None, b""
        read += data
        if len(read) > REPLY_BYTES:
            raise MalformedLine("the reply is too long")
    line, _, received = read.partition(b"\n")
    return line, received


__all__ = ["Exchange", "ServerRefused", "ServerUnavailable", "ask", "connect"]
