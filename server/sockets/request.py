"""Requests to the local socket of another process; see local_socket.py for their form.

Everything here blocks, and imports only the standard library: the clients of `statehold --shared` wait for it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from .address import find_socket, is_same_user

ANSWER_BYTES: Final = 32 << 20
UNKNOWN_VERB: Final = "unknown_verb"
"""The code of an error: the process does not serve this verb now, because it starts or ends."""
_READ_BYTES: Final = 1 << 16


class Unreachable(Exception):
    """Raised when no process listens, or it ended before it answered. Its text is the reason."""


class Unanswered(Exception):
    """Raised when a process gives no well-formed answer in time. Its text is the reason."""


class Refused(Exception):
    """Raised when the process answered with an error."""

    def __init__(self, code: str, message: str, recovery: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.recovery = recovery


@dataclass(frozen=True)
class Exchange:
    """A connection on which a request was answered, in blocking mode, with the bytes that followed the answer."""

    connection: socket.socket
    content: Mapping[str, Any]
    received: bytes


def send_request(
    folder: Path, name: str, verb: str, members: Mapping[str, Any], *, seconds: float
) -> Exchange:
    """Send a request to the socket of a name and return its answer with the connection, which the caller closes.

    Raises:
        Refused: the process answered with an error.
        Unanswered: it did not answer in time, its answer is malformed, or it is of another user.
        Unreachable: it cannot be reached.
    """
    deadline = time.monotonic() + seconds
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(os.fspath(find_socket(folder, name)))
        if not is_same_user(connection):
            raise Unanswered("its socket belongs to another user")
        connection.sendall(json.dumps({"verb": verb, **members}).encode() + b"\n")
        line, received = _receive_line(connection, deadline)
        content = _content(line)
        connection.settimeout(None)
    except TimeoutError:
        connection.close()
        raise Unanswered(f"it did not answer within {seconds:g} s") from None
    except OSError as error:
        # BlockingIOError, among others: too many clients wait to be accepted.
        connection.close()
        raise Unreachable(error.strerror or str(error)) from None
    except BaseException:
        connection.close()
        raise
    return Exchange(connection, content, received)


def _receive_line(connection: socket.socket, deadline: float) -> tuple[bytes, bytes]:
    read = bytearray()
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        data = connection.recv(_READ_BYTES)
        if not data:
            raise Unreachable("it hung up")
        read += data
        if b"\n" in data:
            line, _, received = read.partition(b"\n")
            return bytes(line), bytes(received)
        if len(read) > ANSWER_BYTES:
            raise Unanswered("its answer is too long")


def _content(line: bytes) -> Mapping[str, Any]:
    """Return the content of an answer.

    Raises:
        Refused: it is an error.
        Unanswered: it is malformed.
    """
    try:
        answer: object = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    members = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    content, error = members.get("content"), members.get("error")
    if isinstance(content, dict):
        return cast("dict[str, Any]", content)
    if not isinstance(error, dict):
        raise Unanswered("its answer cannot be read")
    texts = cast("dict[str, Any]", error)
    raise Refused(*(str(texts.get(key, "")) for key in ("code", "message", "recovery")))


__all__ = [
    "UNKNOWN_VERB",
    "Exchange",
    "Refused",
    "Unanswered",
    "Unreachable",
    "send_request",
]
