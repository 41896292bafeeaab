"""Control sockets: the command line calls tools in a running process of the same user, over a Unix socket per node.

A process answers requests while it runs serve_control(). Its socket is in the folder of the locks of the nodes, which only
the user can enter. One connection carries one request and one response, each a line of JSON:
`{"tool": "session_close", "arguments": {"session_id": ID}, "owner": KEY}` is answered by `{"content": {...}}` or by
`{"error": {"code", "message", "recovery"}}`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.json_codec import JSON
from .requests import ControlRequest

Handler = Callable[[ControlRequest], Awaitable[JSON]]
"""Runs a request and returns the content of the tool's result. A SessionError becomes the `error` of the response."""

REQUEST_BYTES = 4 << 20
"""A request may hold a state."""
RESPONSE_BYTES = 32 * 1024 * 1024
READ_SECONDS = 5.0
CONNECTIONS = 32

_PATH_BYTES = 100  # sun_path holds 104 on macOS and 108 on Linux, its end included

logger = logging.getLogger(__name__)


class ControlUnavailable(Exception):
    """Raised when the process that owns a session cannot be reached, or its answer is malformed."""


class ControlRefused(Exception):
    """Raised when the process answered with an error."""

    def __init__(self, code: str, message: str, recovery: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.recovery = recovery


def socket_path(folder: Path, node_id: str) -> Path:
    """Return the path of a node's socket: in `folder`, or elsewhere when that path is too long for a socket."""
    path = folder / f"{node_id}.sock"
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    # Two processes may have different temporary folders, so the server writes the socket's path into a file.
    with suppress(OSError):
        return Path(_address_file(folder, node_id).read_text())
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:20]
    return Path(tempfile.gettempdir()) / f"statehold-{os.getuid()}" / f"{name}.sock"


def forget(folder: Path, node_id: str) -> None:
    """Remove the socket files of a dead node."""
    socket_path(folder, node_id).unlink(missing_ok=True)
    _address_file(folder, node_id).unlink(missing_ok=True)


def _remove_stale(folder: Path) -> None:
    """Remove the sockets of killed nodes: those without a lock on which no process listens."""
    for path in [*folder.glob("*.sock"), *folder.glob("*.addr")]:
        if not path.with_suffix(".lock").exists() and not _is_listening(
            socket_path(folder, path.stem)
        ):
            with suppress(OSError):
                forget(folder, path.stem)


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _address_file(folder: Path, node_id: str) -> Path:
    return folder / f"{node_id}.addr"


@asynccontextmanager
async def serve_control(
    folder: Path, node_id: str, handler: Handler, *, seconds: float = 120.0
) -> AsyncGenerator[Path]:
    """Answer requests for as long as the block runs; yields the path of the socket.

    Enter and leave it in one task. Leaving cancels running requests and removes the socket. A request may take
    `seconds`; the handler is cancelled then.

    Raises:
        OSError: the folder is not private to this user, or the socket cannot be created.
    """
    path = _prepare(folder, node_id)
    listener = await anyio.create_unix_listener(path, mode=0o600)
    slots = anyio.Semaphore(CONNECTIONS)

    async def serve(stream: SocketStream) -> None:
        async with stream, slots:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
                await _answer(stream, handler, seconds)

    try:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            try:
                yield path
            finally:
                tasks.cancel_scope.cancel()
    finally:
        forget(folder, node_id)


def _prepare(folder: Path, node_id: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_unless_private(folder)
    _remove_stale(folder)
    path = socket_path(folder, node_id)
    if path.parent != folder:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _refuse_unless_private(path.parent)
        address_file = _address_file(folder, node_id)
        address_file.touch(0o600)
        address_file.write_text(str(path))
    return path


def _refuse_unless_private(folder: Path) -> None:
    """Refuse a folder in which another user could create a socket: the temporary folder is shared by all users."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            errno.EPERM, "other users may enter it; run: chmod 700", os.fspath(folder)
        )


async def _answer(stream: SocketStream, handler: Handler, seconds: float) -> None:
    if not _same_user(stream):
        return
    with anyio.fail_after(READ_SECONDS):
        line = await _read_line(stream)
    try:
        if line is None:
            raise InvalidArgument(f"A request is one line of at most {REQUEST_BYTES} bytes.")
        request = ControlRequest.parse(line)
        with anyio.fail_after(seconds):
            response: JSON = {"content": await handler(request)}
    except SessionError as error:
        response = _error_response(error.code, error.message, error.recovery)
    except TimeoutError:
        response = _error_response(
            "call_timeout", "It took too long.", "Look at the session, then try again."
        )
    except Exception:
        logger.exception("a control request failed")
        response = _error_response(
            "internal", "It failed.", "See the log of the process that owns it."
        )
    with anyio.fail_after(READ_SECONDS):
        await stream.send(json.dumps(response, default=str).encode() + b"\n")


def _error_response(code: str, message: str, recovery: str) -> JSON:
    return {"error": {"code": code, "message": message, "recovery": recovery}}


def _same_user(stream: SocketStream) -> bool:
    # The folder excludes other users already; where the kernel knows the peer's user, check that as well.
    if sys.platform != "linux":
        return True
    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid in (os.getuid(), 0)


async def _read_line(stream: SocketStream) -> bytes | None:
    """Return the line of a request, None when it is too long."""
    try:
        return await BufferedByteReceiveStream(stream).receive_until(b"\n", REQUEST_BYTES)
    except anyio.DelimiterNotFound:
        return None
    except anyio.IncompleteRead:
        raise anyio.ClosedResourceError from None


async def ask(
    folder: Path, node_id: str, request: ControlRequest, *, seconds: float = 125.0
) -> JSON:
    """Send one request to a node and return the content of the tool's result.

    Raises:
        ControlRefused: the node answered with an error.
        ControlUnavailable: the node cannot be reached, or gives no well-formed answer within `seconds`.
    """
    try:
        with anyio.fail_after(seconds):
            line = await _exchange(socket_path(folder, node_id), request)
        response: object = json.loads(line)
    except TimeoutError:
        raise ControlUnavailable(f"the process did not answer within {seconds:g} s") from None
    except (OSError, anyio.BrokenResourceError, anyio.IncompleteRead) as error:
        reason = error.strerror if isinstance(error, OSError) else "it hung up"
        raise ControlUnavailable(f"the process cannot be reached ({reason})") from None
    except (anyio.DelimiterNotFound, ValueError):
        raise ControlUnavailable("the process gave an answer that cannot be read") from None
    return _content(response)


async def _exchange(path: Path, request: ControlRequest) -> bytes:
    async with await anyio.connect_unix(path) as stream:
        await stream.send(json.dumps(request.to_json()).encode() + b"\n")
        return await BufferedByteReceiveStream(stream).receive_until(b"\n", RESPONSE_BYTES)


def _content(response: object) -> JSON:
    document = cast(JSON, response) if isinstance(response, dict) else {}
    content, error = document.get("content"), document.get("error")
    if isinstance(content, dict):
        return cast(JSON, content)
    if not isinstance(error, dict):
        raise ControlUnavailable("the process gave an answer that cannot be read")
    texts = cast(JSON, error)
    raise ControlRefused(*(str(texts.get(key, "")) for key in ("code", "message", "recovery")))
