"""Requests to the local socket of another process; see local_socket.py for their form.

Everything here blocks, and imports few modules of the standard library: `statehold call` takes as long as its imports.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, cast
else:

    def cast(kind, value):
        """Return a value; typing.cast() without typing, which takes as long as all other imports."""
        return value


ANSWER_BYTES = 32 << 20
UNKNOWN_VERB = "unknown_verb"
"""The code of an error: the process does not serve this verb now, because it starts or ends."""
_READ_BYTES = 1 << 16
_CREDENTIAL_BYTES = 12
"""The bytes of struct ucred on Linux: three numbers of 4 bytes, the second of which is the user."""


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


class Exchange:
    """A connection on which a request was answered, in blocking mode, with the bytes that followed the answer."""

    def __init__(
        self, connection: socket.socket, content: Mapping[str, Any], received: bytes
    ) -> None:
        self.connection = connection
        self.content = content
        self.received = received


def find_socket(folder: str | os.PathLike[str], name: str) -> str:
    """Return the path at which to connect to a socket; see address.py. No process need listen there any more.

    Raises:
        FileNotFoundError: there is no socket of that name.
    """
    path = os.path.join(folder, f"{name}.sock")
    try:
        return os.path.normpath(os.path.join(folder, os.readlink(path)))
    except FileNotFoundError:
        raise
    except OSError:  # it is no link
        return path


def is_same_user(connection: socket.socket) -> bool:
    """Whether this user, or root, is at the other end of a connection."""
    # The folder excludes other users already; where the kernel knows the peer's user, check that as well.
    if sys.platform != "linux":
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIAL_BYTES)
    return int.from_bytes(credentials[4:8], sys.byteorder) in (os.getuid(), 0)


def is_unread(error: OSError) -> bool:
    """Whether the process at the other end of a connection ended before it read the last byte that was sent to it.

    Linux resets a local connection whose other end is closed with bytes that were not read. Elsewhere that is not known.
    """
    is_reset = isinstance(error, ConnectionResetError) and sys.platform == "linux"
    return is_reset or isinstance(error, BrokenPipeError)


def send_request(
    folder: str | os.PathLike[str],
    name: str,
    verb: str,
    members: Mapping[str, Any],
    *,
    seconds: float,
    following: bytes = b"",
) -> Exchange:
    """Send a request to the socket of a name and return its answer with the connection, which the caller closes.

    `following` are the first bytes for the handler of the verb: they are sent without waiting for the answer.

    Raises:
        Refused: the process answered with an error.
        Unanswered: it did not answer in time, its answer is malformed, or it is of another user.
        Unreachable: it cannot be reached.
    """
    deadline = time.monotonic() + seconds
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(find_socket(folder, name))
        if not is_same_user(connection):
            raise Unanswered("its socket belongs to another user")
        connection.sendall(json.dumps({"verb": verb, **members}).encode() + b"\n" + following)
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
    members = as_object(answer)
    if isinstance(members.get("content"), dict):
        return as_object(members["content"])
    if not isinstance(members.get("error"), dict):
        raise Unanswered("its answer cannot be read")
    texts = as_object(members["error"])
    if texts.get("message") == "tool: field required.":
        # Before 0.1 a socket knew no verbs.
        raise Unanswered("it is of an earlier version; end it: statehold stop")
    raise Refused(*(str(texts.get(key, "")) for key in ("code", "message", "recovery")))


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object, an empty one for another value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a JSON list, an empty one for another value."""
    return cast("list[Any]", value) if isinstance(value, list) else []
